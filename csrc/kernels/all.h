/* SPDX-License-Identifier: MIT */
/* The templates of all operations, over the vocabulary that the including level brought. */
#include <math.h>
#include "../table.h"
/* In the order in which they need each other. */
#include "activation.h"
#include "elementwise.h"
#include "output.h"
#ifndef MP_INTEGER
#define MP_INTEGER "integer.h"
#endif
#include MP_INTEGER
#include "quantize.h"
#include "add.h"
#include "combine.h"
#include "pool.h"
#include "stage.h"
#include "half.h"
#include "depthwise.h"
#include "winograd.h"
#include "peak.h"
