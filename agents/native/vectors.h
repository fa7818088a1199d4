// Vectors of the compiler's own extension (GCC, Clang), as wide as those of the target machine, and the functions of
// one argument that networks need.
#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__)
#include <immintrin.h>
#define LANES 16
#define TALL 6 // a tile of a product that stays in registers: TALL units by WIDE vectors of rows
#define WIDE 4
#elif defined(__AVX__)
#define LANES 8
#define TALL 6
#define WIDE 2
#elif defined(__aarch64__)
#define LANES 4
#define TALL 6
#define WIDE 4
#else
#define LANES 4
#define TALL 4
#define WIDE 2
#endif

#define PLACES 64 // rows of a block
#define INLINE static inline __attribute__((always_inline))

typedef float vec __attribute__((vector_size(4 * LANES)));
typedef int32_t ints __attribute__((vector_size(4 * LANES)));
typedef uint32_t bits __attribute__((vector_size(4 * LANES)));
typedef float loose __attribute__((vector_size(4 * LANES), aligned(4), may_alias)); // where alignment is unknown

enum { TANH, RELU, ELU, SILU, NONE };

INLINE vec load(const float *from) { return *(const loose *)from; }
INLINE void store(float *to, vec x) { *(loose *)to = x; }
INLINE vec all(float x) { return (vec){0} + x; }
INLINE vec choose(ints where, vec yes, vec no) { return (vec)((where & (ints)yes) | (~where & (ints)no)); }
INLINE vec least(vec x, float most) { return choose(x > all(most), all(most), x); } // NaN stays NaN
INLINE vec most(vec x, float least) { return choose(x < all(least), all(least), x); }

INLINE vec inverse(vec x) {
#if defined(__AVX512F__)
  vec r = (vec)_mm512_rcp14_ps((__m512)x);
  return r * (2.0f - x * r);
#else
  return 1.0f / x;
#endif
}

// Coefficients of 1 + r + r^2 (EXP2 + EXP3 r + ...), fitted to e^r where |r| <= log(2) / 2: the error is below 4e-9.
#define EXP2 4.999999343e-01f
#define EXP3 1.666652040e-01f
#define EXP4 4.166839077e-02f
#define EXP5 8.368745131e-03f
#define EXP6 1.381454072e-03f

// Return e^x - less, x clipped to [-87, 88], as 2^n (e^r - 1) + (2^n - less), which loses no precision near 0.
INLINE vec exponential_from(vec x, float less) {
  x = most(least(x, 88.0f), -87.0f);
  const float magic = 12582912.0f; // 1.5 * 2^23: rounds to a whole number by being added
  vec shifted = x * 1.44269504088896341f + magic;
  vec n = shifted - magic;
  vec r = x - n * 0.693145751953125f; // log 2 in two parts, the first exact in few bits
  r = r - n * 1.42860682030941723e-06f;
  vec p = all(EXP6);
  p = p * r + EXP5;
  p = p * r + EXP4;
  p = p * r + EXP3;
  p = p * r + EXP2;
  p = p * r + 1.0f;
  vec power = (vec)((bits)all(1.0f) + (((bits)shifted - (bits)all(magic)) << 23)); // 2^n
  return less == 0.0f ? (p * r + 1.0f) * power : p * r * power + (power - less);
}

// Return e^x, with a relative error below 2e-7.
INLINE vec exponential(vec x) { return exponential_from(x, 0.0f); }

INLINE vec activated(vec z, int kind) {
  switch (kind) {
  case TANH: {
    vec e = exponential(2.0f * most(least(z, 9.0f), -9.0f));
    return 1.0f - 2.0f * inverse(e + 1.0f);
  }
  case RELU: return most(z, 0.0f);
  case ELU: return choose(z > all(0.0f), z, exponential_from(least(z, 0.0f), 1.0f));
  case SILU: return z * inverse(1.0f + exponential(-z));
  default: return z;
  }
}

INLINE int64_t padded(int64_t n) { return (n + LANES - 1) / LANES * LANES; }

#if defined(__clang__)
#define SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (ints){__VA_ARGS__})
#endif
#if LANES == 16
#define LOWER(a, b) SHUFFLE(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define UPPER(a, b) SHUFFLE(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
#elif LANES == 8
#define LOWER(a, b) SHUFFLE(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define UPPER(a, b) SHUFFLE(a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#else
#define LOWER(a, b) SHUFFLE(a, b, 0, 4, 1, 5)
#define UPPER(a, b) SHUFFLE(a, b, 2, 6, 3, 7)
#endif

// x [n][stride] -> [stride][padded(n)], of the first `rows` columns at least, up to a multiple of LANES.
static void transposed(const float *x, int64_t stride, int64_t n, int64_t rows, float *to) {
  int64_t across = padded(n);
  for (int64_t u = 0; u < n; u += LANES)
    for (int64_t r = 0; r < rows; r += LANES) {
      vec a[LANES], b[LANES];
      for (int i = 0; i < LANES; i++) a[i] = u + i < n ? load(x + (u + i) * stride + r) : all(0.0f);
      for (int size = 1; size < LANES; size *= 2) { // each pass interleaves the first half of the vectors and the second
        for (int i = 0; i < LANES / 2; i++) {
          b[2 * i] = LOWER(a[i], a[i + LANES / 2]);
          b[2 * i + 1] = UPPER(a[i], a[i + LANES / 2]);
        }
        for (int i = 0; i < LANES; i++) a[i] = b[i];
      }
      for (int i = 0; i < LANES; i++) store(to + (r + i) * across + u, a[i]);
    }
}

INLINE float total(vec x) {
  float sum = 0;
  for (int i = 0; i < LANES; i++) sum += x[i];
  return sum;
}
