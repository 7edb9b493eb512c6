/* SPDX-License-Identifier: MIT */
/* The templates of all operations, over the vocabulary that the including level brought. */
#include <math.h>
#include "../table.h"
/* In the order in which they need each other. */
#include "activation.h"
#include "elementwise.h"
#include "output.h"
#ifdef MP_SHARED
#include "shared.h"
#else
#include "integer.h"
#include "local_mean.h"
#include "layer_norm.h"
#include "attention.h"
#endif
#include "quantize.h"
#include "add.h"
#include "combine.h"
#include "pool.h"
#include "stage.h"
#include "half.h"
#include "depthwise.h"
#include "winograd.h"
#include "peak.h"
