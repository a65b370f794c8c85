/* Run-time support of generated C: vector types, mathematics, integer helpers. Self-contained C11 + GNU vector extensions. */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define TANG_COLD __attribute__((cold, noinline))
#define TANG_MIN(a, b) ((b) < (a) || (b) != (b) ? (b) : (a))
#define TANG_MAX(a, b) ((b) > (a) || (b) != (b) ? (b) : (a))
#define TANG_SATURATE(T, x, lo, hi) ((x) != (x) ? (T)0 : (x) <= (double)(lo) ? (T)(lo) : (x) >= (double)(hi) ? (T)(hi) : (T)(x))
/* x - 0 is x for every x (-0 and NaN included), so compilers make it a plain broadcast; 0 + x is not (-0) */
#define TANG_SPLAT(V, x) ((x) - (V){0})
#define TANG_LOAD(V, p) ((V)(*(const V##_at *)(p)))
#define TANG_STORE(V, p, x) (*(V##_at *)(p) = (x))
#define TANG_STORE_SOME(V, p, x, n)                                              \
  do {                                                                           \
    const V x_ = (x);                                                            \
    const long n_ = (n);                                                         \
    if (n_ >= (long)(sizeof(V) / sizeof(x_[0]))) TANG_STORE(V, p, x_);           \
    else if (n_ > 0) memcpy((void *)(p), &x_, (size_t)n_ * sizeof(x_[0]));       \
  } while (0)
#define TANG_STORE_APART(V, p, x, n, stride)                                     \
  do {                                                                           \
    const V x_ = (x);                                                            \
    const long all_ = (long)(sizeof(V) / sizeof(x_[0])), want_ = (n);            \
    for (long l_ = 0; l_ < (want_ < all_ ? want_ : all_); ++l_) (p)[l_ * (stride)] = x_[l_]; \
  } while (0)

/* Indices are long, sizes are int64_t: the same where long has 64 bits. */
#define TANG_INTEGERS(S, T)                                                      \
  static inline T tang_lesser_##S(T a, T b) { return a < b ? a : b; }            \
  static inline T tang_greater_##S(T a, T b) { return a > b ? a : b; }           \
  static inline T tang_floor_div_##S(T a, T k) { return a / k - (a % k < 0); }   \
  static inline T tang_floor_mod_##S(T a, T k) { const T r = a % k; return r < 0 ? r + k : r; }
TANG_INTEGERS(l, long) TANG_INTEGERS(ll, long long)
#define TANG_WIDTH(name, a, b) _Generic((a) + (b), long long: name##_ll, default: name##_l)(a, b)
#define tang_lesser(a, b) TANG_WIDTH(tang_lesser, a, b)
#define tang_greater(a, b) TANG_WIDTH(tang_greater, a, b)
#define tang_floor_div(a, b) TANG_WIDTH(tang_floor_div, a, b)
#define tang_floor_mod(a, b) TANG_WIDTH(tang_floor_mod, a, b)

/* Integers of data: they wrap around, x / 0 and x % 0 are 0, a shift by the width or more leaves 0 or the sign. */
#define TANG_SIGNED(N, T, U, LO, HI)                                             \
  static inline T tang_div_##N(T a, T b) { return b == 0 ? 0 : b == -1 ? (T)(0u - (U)a) : (T)(a / b); } \
  static inline T tang_fmod_##N(T a, T b) { return b == 0 || b == -1 ? 0 : (T)(a % b); } \
  static inline T tang_mod_##N(T a, T b) {                                       \
    const T r = tang_fmod_##N(a, b);                                             \
    return r != 0 && (r < 0) != (b < 0) ? (T)(r + b) : r;                        \
  }                                                                              \
  static inline T tang_shl_##N(T a, T n) { return (U)n < 8 * sizeof(T) ? (T)((U)a << n) : (T)0; } \
  static inline T tang_shr_##N(T a, T n) { return (U)n < 8 * sizeof(T) ? (T)(a >> n) : (T)-(a < 0); } \
  static inline T tang_abs_##N(T a) { return a < 0 ? (T)(0u - (U)a) : a; }       \
  static inline T tang_sign_##N(T a) { return (T)((a > 0) - (a < 0)); }          \
  static inline T tang_pow_##N(T a, T n) { const double p = pow((double)a, (double)n); return TANG_SATURATE(T, p, LO, HI); }
#define TANG_UNSIGNED(N, T, HI)                                                  \
  static inline T tang_div_##N(T a, T b) { return b == 0 ? 0 : (T)(a / b); }     \
  static inline T tang_fmod_##N(T a, T b) { return b == 0 ? 0 : (T)(a % b); }    \
  static inline T tang_mod_##N(T a, T b) { return b == 0 ? 0 : (T)(a % b); }     \
  static inline T tang_shl_##N(T a, T n) { return n < 8 * sizeof(T) ? (T)(a << n) : (T)0; } \
  static inline T tang_shr_##N(T a, T n) { return n < 8 * sizeof(T) ? (T)(a >> n) : (T)0; } \
  static inline T tang_abs_##N(T a) { return a; }                                \
  static inline T tang_sign_##N(T a) { return a != 0; }                          \
  static inline T tang_pow_##N(T a, T n) { const double p = pow((double)a, (double)n); return TANG_SATURATE(T, p, 0, HI); }
TANG_SIGNED(i8, int8_t, uint8_t, INT8_MIN, INT8_MAX) TANG_SIGNED(i16, int16_t, uint16_t, INT16_MIN, INT16_MAX)
TANG_SIGNED(i32, int32_t, uint32_t, INT32_MIN, INT32_MAX) TANG_SIGNED(i64, int64_t, uint64_t, INT64_MIN, INT64_MAX)
TANG_UNSIGNED(u8, uint8_t, UINT8_MAX) TANG_UNSIGNED(u16, uint16_t, UINT16_MAX)
TANG_UNSIGNED(u32, uint32_t, UINT32_MAX) TANG_UNSIGNED(u64, uint64_t, UINT64_MAX)

static inline float tang_mod_f32(float a, float b) {
  const float r = fmodf(a, b);
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
static inline double tang_mod_f64(double a, double b) {
  const double r = fmod(a, b);
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

#define TANG_LIBM(name)                                                          \
  static inline float tang_##name##_f32(float x) { return name##f(x); }          \
  static inline double tang_##name##_f64(double x) { return name(x); }
TANG_LIBM(exp) TANG_LIBM(log) TANG_LIBM(sin) TANG_LIBM(cos) TANG_LIBM(tan) TANG_LIBM(asin) TANG_LIBM(acos)
TANG_LIBM(atan) TANG_LIBM(sinh) TANG_LIBM(cosh) TANG_LIBM(tanh) TANG_LIBM(asinh) TANG_LIBM(acosh)
TANG_LIBM(atanh) TANG_LIBM(erf)
#ifdef __FLT16_MAX__
#define TANG_HALF(name) static inline _Float16 tang_##name##_f16(_Float16 x) { return (_Float16)name##f((float)x); }
TANG_HALF(exp) TANG_HALF(log) TANG_HALF(sin) TANG_HALF(cos) TANG_HALF(tan) TANG_HALF(asin) TANG_HALF(acos)
TANG_HALF(atan) TANG_HALF(sinh) TANG_HALF(cosh) TANG_HALF(tanh) TANG_HALF(asinh) TANG_HALF(acosh)
TANG_HALF(atanh) TANG_HALF(erf)
static inline _Float16 tang_mod_f16(_Float16 a, _Float16 b) { return (_Float16)tang_mod_f32((float)a, (float)b); }
#endif

/* Vectors of L lanes. Masks (results of comparisons) are i32 vectors of 0 and -1. */
#define TANG_TYPE(V, T, L)                                                       \
  typedef T V __attribute__((vector_size(sizeof(T) * L)));                       \
  typedef T V##_at __attribute__((vector_size(sizeof(T) * L), aligned(sizeof(T)), may_alias));

#define TANG_EACH(V, L, name, call)                                              \
  static inline V tang_##name##_##V(V x) {                                       \
    V y = x;                                                                     \
    for (int l = 0; l < L; ++l) y[l] = call(x[l]);                               \
    return y;                                                                    \
  }

#define TANG_EACH2(V, L, name, call)                                             \
  static inline V tang_##name##_##V(V x, V y) {                                  \
    V z = x;                                                                     \
    for (int l = 0; l < L; ++l) z[l] = call(x[l], y[l]);                         \
    return z;                                                                    \
  }

/* Vectors of 32-bit integers of the type with the suffix S */
#define TANG_CHOICE(V, I, L, S)                                                  \
  static inline V tang_select_##V(I m, V a, V b) { return (V)((m & (I)a) | (~m & (I)b)); } \
  static inline V tang_min_##V(V a, V b) { return tang_select_##V(b < a, b, a); } \
  static inline V tang_max_##V(V a, V b) { return tang_select_##V(b > a, b, a); } \
  TANG_EACH2(V, L, div, tang_div_##S) TANG_EACH2(V, L, mod, tang_mod_##S) TANG_EACH2(V, L, fmod, tang_fmod_##S) \
  TANG_EACH2(V, L, shl, tang_shl_##S) TANG_EACH2(V, L, shr, tang_shr_##S) TANG_EACH2(V, L, pow, tang_pow_##S) \
  TANG_EACH(V, L, abs, tang_abs_##S) TANG_EACH(V, L, sign, tang_sign_##S)

#define TANG_ORDER(V, I)                                                         \
  static inline V tang_select_##V(I m, V a, V b) { return (V)((m & (I)a) | (~m & (I)b)); } \
  static inline V tang_min_##V(V a, V b) { return tang_select_##V((b < a) | (b != b), b, a); } \
  static inline V tang_max_##V(V a, V b) { return tang_select_##V((b > a) | (b != b), b, a); }

/* exp: 2^n * e^r with |r| <= ln2/2, degree 7 (remainder below 6e-9); log: 2 atanh((m-1)/(m+1)), m in [sqrt(1/2), sqrt(2));
   tanh: its series below 0.35, else 1 - 2 / (e^{2x} + 1). Within 2 units in the last place; tested against float64. */
#define TANG_VECTORS(L)                                                          \
  TANG_TYPE(v##L##f32, float, L) TANG_TYPE(v##L##i32, int32_t, L) TANG_TYPE(v##L##u32, uint32_t, L) \
  TANG_TYPE(v##L##i8, int8_t, L) TANG_TYPE(v##L##u8, uint8_t, L) TANG_TYPE(v##L##i16, int16_t, L) \
  TANG_TYPE(v##L##u16, uint16_t, L)                                              \
  typedef v##L##i32 v##L##bool;                                                  \
  TANG_ORDER(v##L##f32, v##L##i32)                                               \
  TANG_CHOICE(v##L##i32, v##L##i32, L, i32) TANG_CHOICE(v##L##u32, v##L##i32, L, u32) \
  static inline v##L##i32 tang_select_v##L##bool(v##L##i32 m, v##L##i32 a, v##L##i32 b) { return (m & a) | (~m & b); } \
  static inline v##L##f32 tang_abs_v##L##f32(v##L##f32 x) { return (v##L##f32)((v##L##i32)x & 0x7fffffff); } \
  static inline v##L##i32 tang_isinf_v##L##f32(v##L##f32 x) { return ((v##L##i32)x & 0x7fffffff) == 0x7f800000; } \
  static inline v##L##f32 tang_saturate_v##L##f32(v##L##f32 x, float lo, float hi) { \
    const v##L##f32 z = TANG_SPLAT(v##L##f32, 0.0f), a = TANG_SPLAT(v##L##f32, lo), b = TANG_SPLAT(v##L##f32, hi); \
    x = tang_select_v##L##f32(x < a, a, tang_select_v##L##f32(x > b, b, x));     \
    return tang_select_v##L##f32(x != x, z, x);                                  \
  }                                                                              \
  static inline v##L##i32 tang_to_i32_v##L##f32(v##L##f32 x) { /* 2147483520: the greatest float below 2^31 */ \
    const v##L##i32 y = __builtin_convertvector(tang_saturate_v##L##f32(x, -2147483648.0f, 2147483520.0f), v##L##i32); \
    return y | ((x >= 2147483648.0f) & INT32_MAX);                               \
  }                                                                              \
  static inline v##L##u32 tang_to_u32_v##L##f32(v##L##f32 x) {                   \
    const v##L##u32 y = __builtin_convertvector(tang_saturate_v##L##f32(x, 0.0f, 4294967040.0f), v##L##u32); \
    return y | (v##L##u32)(x >= 4294967296.0f);                                  \
  }                                                                              \
  static inline v##L##f32 tang_exp_v##L##f32(v##L##f32 x) {                      \
    const v##L##f32 c = tang_select_v##L##f32(x > 89.0f, TANG_SPLAT(v##L##f32, 89.0f), \
                        tang_select_v##L##f32(x < -104.0f, TANG_SPLAT(v##L##f32, -104.0f), x)); \
    const v##L##f32 t = c * 1.44269504f + 12582912.0f, n = t - 12582912.0f;      \
    const v##L##f32 r = (c - n * 0.693145752f) - n * 1.42860677e-6f;             \
    v##L##f32 p = r * 1.98412698e-4f + 1.38888889e-3f;                           \
    p = p * r + 8.33333333e-3f; p = p * r + 4.16666667e-2f; p = p * r + 1.66666667e-1f; \
    p = p * r + 0.5f; p = p * (r * r) + (r + 1.0f);                              \
    const v##L##i32 e = __builtin_convertvector(n, v##L##i32), h = e >> 1;       \
    p = p * (v##L##f32)((h + 127) << 23) * (v##L##f32)((e - h + 127) << 23);     \
    return tang_select_v##L##f32(x != x, x, p);                                  \
  }                                                                              \
  static inline v##L##f32 tang_log_v##L##f32(v##L##f32 x) {                      \
    const v##L##i32 tiny = x < 1.17549435e-38f;                                  \
    const v##L##f32 y = tang_select_v##L##f32(tiny, x * 8388608.0f, x);          \
    v##L##i32 e = (((v##L##i32)y - 0x3f3504f3) >> 23);                           \
    const v##L##f32 m = (v##L##f32)((v##L##i32)y - (e << 23));                   \
    e += tiny & -23;                                                             \
    const v##L##f32 s = (m - 1.0f) / (m + 1.0f), q = s * s;                      \
    v##L##f32 p = q * 0.111111111f + 0.142857143f;                               \
    p = p * q + 0.2f; p = p * q + 0.333333333f;                                  \
    const v##L##f32 n = __builtin_convertvector(e, v##L##f32);                   \
    v##L##f32 r = n * 0.693147182f + (n * -1.90465421e-9f + (2.0f * s + 2.0f * s * q * p)); \
    r = tang_select_v##L##f32(x == (float)INFINITY, x, r);                       \
    r = tang_select_v##L##f32(x == 0.0f, TANG_SPLAT(v##L##f32, (float)-INFINITY), r); \
    return tang_select_v##L##f32((x < 0.0f) | (x != x), TANG_SPLAT(v##L##f32, (float)NAN), r); \
  }                                                                              \
  static inline v##L##f32 tang_tanh_v##L##f32(v##L##f32 x) {                     \
    const v##L##f32 a = tang_abs_v##L##f32(x), q = x * x;                        \
    v##L##f32 p = q * 3.59212804e-3f - 8.86323553e-3f;                           \
    p = p * q + 2.18694885e-2f; p = p * q - 5.39682540e-2f; p = p * q + 1.33333333e-1f; \
    p = p * q - 3.33333333e-1f; p = p * q * x + x;                               \
    v##L##f32 b = 1.0f - 2.0f / (tang_exp_v##L##f32(a + a) + 1.0f);              \
    b = tang_select_v##L##f32(a < 0.35f, tang_abs_v##L##f32(p), b);              \
    b = (v##L##f32)((v##L##i32)b | ((v##L##i32)x & (int32_t)0x80000000));        \
    return tang_select_v##L##f32(x != x, x, b);                                  \
  }                                                                              \
  static inline v##L##f32 tang_sign_v##L##f32(v##L##f32 x) {                     \
    return tang_select_v##L##f32(x != x, x, __builtin_convertvector((x < 0.0f) - (x > 0.0f), v##L##f32)); \
  }                                                                              \
  TANG_EACH(v##L##f32, L, sqrt, sqrtf) TANG_EACH(v##L##f32, L, floor, floorf) TANG_EACH(v##L##f32, L, ceil, ceilf) \
  TANG_EACH(v##L##f32, L, round, rintf) TANG_EACH(v##L##f32, L, trunc, truncf) TANG_EACH(v##L##f32, L, sin, sinf) \
  TANG_EACH(v##L##f32, L, cos, cosf) TANG_EACH(v##L##f32, L, tan, tanf) TANG_EACH(v##L##f32, L, asin, asinf) \
  TANG_EACH(v##L##f32, L, acos, acosf) TANG_EACH(v##L##f32, L, atan, atanf) TANG_EACH(v##L##f32, L, sinh, sinhf) \
  TANG_EACH(v##L##f32, L, cosh, coshf) TANG_EACH(v##L##f32, L, asinh, asinhf) TANG_EACH(v##L##f32, L, acosh, acoshf) \
  TANG_EACH(v##L##f32, L, atanh, atanhf) TANG_EACH(v##L##f32, L, erf, erff)      \
  TANG_EACH2(v##L##f32, L, mod, tang_mod_f32) TANG_EACH2(v##L##f32, L, fmod, fmodf) TANG_EACH2(v##L##f32, L, pow, powf)
