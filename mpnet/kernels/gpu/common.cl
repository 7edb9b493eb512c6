/* SPDX-License-Identifier: MIT */
/* What all kernels share: OpenCL C 1.2, and CUDA C++ by the second half of the first block. docs/arithmetic.md is the contract.
 *
 * Reals go through + - * / and fma, conversions and rounding to whole numbers, each of which IEEE 754 fixes. No other function of
 * a device's library is called, since its result may differ from one device to the next; nothing is contracted (the macros say
 * what is fused). 16-bit reals are converted in whole numbers, so that a device needs no halves.
 *
 * A tensor is a pointer to memory and the byte at which it begins there, because tensors lie in arenas and OpenCL 1.2 has no
 * sub-buffers at every byte. */
#ifdef __OPENCL_VERSION__
#pragma OPENCL FP_CONTRACT OFF
#define KERNEL __kernel
#define GLOBAL __global
#define FN static inline
#define ITEM ((i64)get_global_id(0))
#define LOCAL __local
#define ITEM_OF_GROUP ((int)get_local_id(0))
#define BARRIER barrier(CLK_LOCAL_MEM_FENCE)
#define OF_GROUPS __attribute__((reqd_work_group_size(GROUP, 1, 1)))
typedef uchar u8;
typedef char i8;
typedef short i16;
typedef ushort u16;
typedef int i32;
typedef uint u32;
typedef long i64;
#define FMA(a, b, c) fma(a, b, c)
#define ADD(a, b) ((a) + (b))
#define SUB(a, b) ((a) - (b))
#define MUL(a, b) ((a) * (b))
#define DIV(a, b) ((a) / (b)) /* this and the root: built with -cl-fp32-correctly-rounded-divide-sqrt */
#define ROOT_OF(x) sqrt(x)
#define BITS(x) as_uint(x)
#define REAL(bits) as_float(bits)
#define ROUND_EVEN(x) rint(x)
#define TRUNCATE(x) trunc(x)
#define FLOOR(x) floor(x)
#define FROM_I32(x) convert_float_rte((i32)(x))
#define FROM_I64(x) convert_float_rte((i64)(x))
#define ATOMIC_MIN(p, v) atomic_min(p, v)
#define ATOMIC_MAX(p, v) atomic_max(p, v)
#define INLINE_STRUCT const
#else
#define KERNEL extern "C" __global__
#define GLOBAL
#define FN static __device__ __forceinline__
#define ITEM ((i64)blockIdx.x * blockDim.x + threadIdx.x)
#define LOCAL __shared__
#define ITEM_OF_GROUP ((int)threadIdx.x)
#define BARRIER __syncthreads()
#define OF_GROUPS __launch_bounds__(GROUP)
typedef unsigned char u8;
typedef signed char i8;
typedef short i16;
typedef unsigned short u16;
typedef int i32;
typedef unsigned u32;
typedef long long i64;
/* Intrinsics, which no option of a compiler fuses or approximates. */
#define FMA(a, b, c) __fmaf_rn(a, b, c)
#define ADD(a, b) __fadd_rn(a, b)
#define SUB(a, b) __fsub_rn(a, b)
#define MUL(a, b) __fmul_rn(a, b)
#define DIV(a, b) __fdiv_rn(a, b)
#define ROOT_OF(x) __fsqrt_rn(x)
#define BITS(x) __float_as_uint(x)
#define REAL(bits) __uint_as_float(bits)
#define ROUND_EVEN(x) rintf(x)
#define TRUNCATE(x) truncf(x)
#define FLOOR(x) floorf(x)
#define FROM_I32(x) __int2float_rn((i32)(x))
#define FROM_I64(x) __ll2float_rn((i64)(x))
#define ATOMIC_MIN(p, v) atomicMin(p, v)
#define ATOMIC_MAX(p, v) atomicMax(p, v)
#endif

#define GROUP 64 /* work items of a group, as mpnet/kernels/gpu/driver.py has it */
#define TENSOR(name) GLOBAL u8 *name##_memory, const i64 name##_start
#define VALUES(type, name) ((GLOBAL type *)(name##_memory + name##_start))
/* Where a call leaves its status: the least number of a call that failed, times 8, and MP_NONFINITE or what else it was. */
#define STATUS GLOBAL i32 *status, const i32 number
#define FAIL(code) ATOMIC_MIN(status, number * 8 + (code))

/* Numbers of csrc/mpnet.h; tests/kernels/test_gpu.py compares them. */
enum { MP_BAD_ARGUMENT = 1, MP_BAD_SHAPE = 2, MP_NONFINITE = 4 };
enum { TYPE_F32 = 0, TYPE_F16 = 1, TYPE_I8 = 2, TYPE_BF16 = 3, TYPE_I16 = 4, TYPE_I32 = 5 };
enum {
    LINEAR = 0, LEAKY = 1, RELU = 2, RELU6 = 3, LOGISTIC = 4, MISH = 5, SWISH = 6, LOGGY = 7, TANH = 8, RELIE = 9, RAMP = 10,
    PLSE = 11, ELU = 12, SELU = 13, GELU = 14, STAIR = 15, HARDTAN = 16, LHTAN = 17, HARD_MISH = 18, HARD_SIGMOID = 19,
    HARD_SWISH = 20, GELU_ERF = 21, SQRT = 22
};
enum { HALF_TO_EVEN = 0, HALF_AWAY = 1 };

#define INFINITE 0x7f800000u

FN int is_real(i64 type) { return type == TYPE_F32 || type == TYPE_F16 || type == TYPE_BF16; }
FN int not_finite(float x) { return (BITS(x) & INFINITE) == INFINITE; }

/* ---- reals of 16 bits ---- */
FN float half_to_float(u16 half_bits)
{
    const u32 sign = (u32)(half_bits & 0x8000) << 16, exponent = half_bits >> 10 & 31, mantissa = half_bits & 0x3ff;
    if (exponent == 31) return REAL(sign | INFINITE | mantissa << 13);
    if (exponent) return REAL(sign | (exponent + 112) << 23 | mantissa << 13);
    /* A subnormal half is mantissa * 2^-24, which float holds exactly. */
    return REAL(sign | BITS(MUL(FROM_I32(mantissa), 0x1p-24f)));
}
FN u16 float_to_half(float x)
{
    const u32 sign = BITS(x) >> 16 & 0x8000, magnitude = BITS(x) & 0x7fffffffu;
    u32 shift, kept, left, middle;
    if (magnitude > INFINITE) return (u16)(sign | 0x7e00);
    if (magnitude >= 0x47800000u) return (u16)(sign | 0x7c00); /* 65536 and more */
    if (magnitude < 0x33000000u) return (u16)sign;             /* below half of the smallest */
    if (magnitude < 0x38800000u) {
        /* A subnormal half counts steps of 2^-24. */
        const u32 mantissa = (magnitude & 0x7fffffu) | 0x800000u;
        shift = 126 - (magnitude >> 23);
        kept = mantissa >> shift;
        left = mantissa & ((1u << shift) - 1);
    } else {
        shift = 13;
        kept = (magnitude - 0x38000000u) >> 13;
        left = magnitude & 0x1fffu;
    }
    middle = 1u << (shift - 1);
    kept += left > middle || (left == middle && (kept & 1)); /* carries into the exponent, and on to infinity */
    return (u16)(sign | kept);
}
FN float bf16_to_float(u16 bits) { return REAL((u32)bits << 16); }
FN u16 float_to_bf16(float x)
{
    const u32 bits = BITS(x);
    if ((bits & 0x7fffffffu) > INFINITE) return (u16)(bits >> 16 | 0x40);
    return (u16)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

FN float load_real(GLOBAL const u8 *x, i64 at, i64 type)
{
    if (type == TYPE_F32) return ((GLOBAL const float *)x)[at];
    return type == TYPE_F16 ? half_to_float(((GLOBAL const u16 *)x)[at]) : bf16_to_float(((GLOBAL const u16 *)x)[at]);
}
FN float rounded_to(float x, i64 type)
{
    if (type == TYPE_F32) return x;
    return type == TYPE_F16 ? half_to_float(float_to_half(x)) : bf16_to_float(float_to_bf16(x));
}
FN void store_real(GLOBAL u8 *x, i64 at, i64 type, float value)
{
    if (type == TYPE_F32) ((GLOBAL float *)x)[at] = value;
    else ((GLOBAL u16 *)x)[at] = type == TYPE_F16 ? float_to_half(value) : float_to_bf16(value);
}
FN i32 load_code(GLOBAL const u8 *x, i64 at, i64 type)
{
    return type == TYPE_I8 ? (i32)((GLOBAL const i8 *)x)[at] : (i32)((GLOBAL const i16 *)x)[at];
}
FN void store_code(GLOBAL u8 *x, i64 at, i64 type, i32 code)
{
    if (type == TYPE_I8) ((GLOBAL i8 *)x)[at] = (i8)code;
    else ((GLOBAL i16 *)x)[at] = (i16)code;
}

/* Floats as integers of the same order, for atomic minima and maxima; -0 counts as +0. Its own inverse, of what is finite. */
FN i32 ordered(float x)
{
    const i32 bits = (i32)BITS(ADD(x, 0.0f));
    return bits < 0 ? bits ^ 0x7fffffff : bits;
}
FN float from_ordered(i32 key) { return REAL((u32)(key < 0 ? key ^ 0x7fffffff : key)); }

/* a * b + c of halves, rounded to half once. The product has 22 bits, so it is exact in float; the sum is rounded to odd there
 * (its error is exact as well), after which rounding to half is the only one that counts. */
FN float half_fma(float a, float b, float c)
{
    const float product = MUL(a, b), sum = ADD(product, c), part = SUB(sum, product);
    const float error = ADD(SUB(product, SUB(sum, part)), SUB(c, part));
    u32 bits = BITS(sum);
    if (!not_finite(sum) && error != 0.0f && !(bits & 1)) bits += (bits ^ BITS(error)) >> 31 ? -1 : 1;
    return half_to_float(float_to_half(REAL(bits)));
}

/* sum + the products of the four signed bytes of two words. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 610
FN i32 add_byte_products(i32 a, i32 b, i32 sum) { return __dp4a(a, b, sum); }
#else
FN i32 add_byte_products(i32 a, i32 b, i32 sum)
{
    int i;
    for (i = 0; i < 32; i += 8) sum += (i32)(i8)(a >> i) * (i32)(i8)(b >> i);
    return sum;
}
#endif

/* ---- section 3 ---- */
FN float exponential(float x)
{
    float shifted, n, r, p;
    x = x > 88.37626f ? 88.37626f : x;
    x = x < -87.33654f ? -87.33654f : x;
    shifted = FMA(x, 0x1.715476p+0f, 12582912.0f);
    n = SUB(shifted, 12582912.0f);
    r = FMA(n, -0x1.62e4p-1f, x);
    r = FMA(n, -0x1.7f7d1cp-20f, r);
    p = FMA(0x1.6a23cep-10f, r, 0x1.123a2p-7f);
    p = FMA(p, r, 0x1.5558f2p-5f);
    p = FMA(p, r, 0x1.555492p-3f);
    p = FMA(p, r, 0x1.fffffcp-2f);
    p = FMA(p, r, 1.0f);
    p = FMA(p, r, 1.0f);
    return MUL(p, REAL((BITS(shifted) << 23) + 0x3f800000u));
}
FN float loggy(float x) { return SUB(DIV(2.0f, ADD(1.0f, exponential(-x))), 1.0f); }
FN float hard_sigmoid(float x)
{
    const float t = ADD(MUL(1.0f / 6.0f, x), 0.5f);
    return t > 1.0f ? 1.0f : t < 0.0f ? 0.0f : t;
}
FN float gelu(float x)
{
    const float u = ADD(MUL(0.797885f, x), MUL(0.035677f, MUL(MUL(x, x), x)));
    return MUL(MUL(0.5f, x), ADD(1.0f, loggy(MUL(2.0f, u))));
}
FN float gelu_erf(float x)
{
    const float magnitude = x < 0.0f ? -x : x, y = magnitude < 16.0f ? magnitude : 16.0f;
    const float t = DIV(1.0f, ADD(MUL(MUL(0.3275911f, 0.70710678f), y), 1.0f));
    float p = ADD(MUL(1.061405429f, t), -1.453152027f);
    p = ADD(MUL(p, t), 1.421413741f);
    p = ADD(MUL(p, t), -0.284496736f);
    p = ADD(MUL(p, t), 0.254829592f);
    p = MUL(MUL(p, t), exponential(MUL(MUL(y, y), -0.5f)));
    return SUB(x > 0.0f ? x : 0.0f, MUL(MUL(0.5f, y), p));
}
FN float mish(float x)
{
    const float e = exponential(x < 20.0f ? x : 20.0f), n = MUL(e, ADD(e, 2.0f));
    return MUL(x, DIV(n, ADD(n, 2.0f)));
}
FN float stair(float x)
{
    const float n = FLOOR(x), h = FLOOR(MUL(0.5f, x));
    return n > MUL(2.0f, h) ? ADD(SUB(x, n), h) : h;
}
FN float plse(float x)
{
    if (x < -4.0f) return MUL(0.01f, ADD(x, 4.0f));
    return x > 4.0f ? ADD(MUL(0.01f, SUB(x, 4.0f)), 1.0f) : ADD(MUL(0.125f, x), 0.5f);
}
FN float activate(float x, i64 activation)
{
    switch ((int)activation) {
    case LEAKY: return x > 0.0f ? x : MUL(0.1f, x);
    case RELU: return x > 0.0f ? x : 0.0f;
    case RELU6: return x > 0.0f ? (x < 6.0f ? x : 6.0f) : 0.0f;
    case LOGISTIC: return DIV(1.0f, ADD(1.0f, exponential(-x)));
    case SWISH: return DIV(x, ADD(1.0f, exponential(-x)));
    case MISH: return mish(x);
    case LOGGY: return loggy(x);
    case TANH: return loggy(MUL(2.0f, x));
    case RELIE: return x > 0.0f ? x : MUL(0.01f, x);
    case RAMP: return ADD(x > 0.0f ? x : 0.0f, MUL(0.1f, x));
    case PLSE: return plse(x);
    case ELU: return x < 0.0f ? SUB(exponential(x), 1.0f) : x;
    case SELU: return x < 0.0f ? MUL(MUL(1.0507f, 1.6732f), SUB(exponential(x), 1.0f)) : MUL(1.0507f, x);
    case GELU: return gelu(x);
    case STAIR: return stair(x);
    case HARDTAN: return x > 1.0f ? 1.0f : x < -1.0f ? -1.0f : x;
    case LHTAN: return x < 0.0f ? MUL(0.001f, x) : x > 1.0f ? ADD(MUL(0.001f, SUB(x, 1.0f)), 1.0f) : x;
    case HARD_MISH: return x > 0.0f ? x : x > -2.0f ? ADD(MUL(0.5f, MUL(x, x)), x) : 0.0f;
    case HARD_SIGMOID: return hard_sigmoid(x);
    case HARD_SWISH: return MUL(x, hard_sigmoid(x));
    case GELU_ERF: return gelu_erf(x);
    case SQRT: return x < 0.0f ? 0.0f : ROOT_OF(x);
    default: return x;
    }
}

/* ---- section 4 ---- */
FN i32 quantized(float x, float inv_scale, i32 zero_point, i64 rounding, i64 low, i64 high)
{
    const float least = FROM_I32(low - zero_point), most = FROM_I32(high - zero_point);
    float t = MUL(x, inv_scale);
    t = t > least ? t : least;
    t = t < most ? t : most;
    if (rounding == HALF_TO_EVEN) t = ROUND_EVEN(t);
    else if (rounding == HALF_AWAY) t = TRUNCATE(ADD(t, REAL(0x3effffffu | (BITS(t) & 0x80000000u))));
    else t = TRUNCATE(t);
    return (i32)t + zero_point;
}

/* ---- section 10 ---- */
FN i64 times_32(i64 x, i32 multiplier, i32 shift)
{
    const int left = shift > 0 ? shift : 0, right = shift < 0 ? -shift : 0;
    const i64 high = (x * ((i64)1 << left) * multiplier + ((i64)1 << 30)) >> 31, middle = right ? (i64)1 << (right - 1) : 0;
    return high < 0 ? -((middle - high) >> right) : (high + middle) >> right;
}
FN i64 times_64(i64 x, i32 multiplier, i32 shift)
{
    const i64 factor = multiplier < 0x7fff0000 ? ((i64)multiplier + (1 << 15)) >> 16 : 0x7fff;
    const int right = 15 - shift;
    return (x * factor + ((i64)1 << (right - 1))) >> right;
}
FN int is_factor(i32 multiplier, i32 shift)
{
    return multiplier == 0 ? shift == 0 : multiplier >= 1 << 30 && shift >= -31 && shift <= 30;
}
FN int is_zero_point(i64 type, i32 zero_point) { return type == TYPE_I8 ? zero_point >= -128 && zero_point <= 127 : zero_point == 0; }
FN i64 within(i64 x, i64 low, i64 high) { return x < low ? low : x > high ? high : x; }
