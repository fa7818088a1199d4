// Products of matrices of which one, and the result, lie by unit and then by row: [units][PLACES].

// A tile of C = A B: `tall` x `wide` vectors, over `depth`; A(m, k) is at a[m * am + k * ak].
#define TILE(tall, wide)                                                                                               \
  {                                                                                                                    \
    vec sum[tall][wide];                                                                                               \
    _Pragma("GCC unroll 8") for (int m = 0; m < tall; m++) _Pragma("GCC unroll 8") for (int n = 0; n < wide; n++)      \
        sum[m][n] = added ? load(c + m * width + n * LANES) : bias ? all(bias[m]) : all(0.0f);                         \
    for (int64_t k = 0; k < depth; k++) {                                                                              \
      vec row[wide];                                                                                                   \
      _Pragma("GCC unroll 8") for (int n = 0; n < wide; n++) row[n] = load(b + k * across + n * LANES);                \
      _Pragma("GCC unroll 8") for (int m = 0; m < tall; m++) {                                                         \
        float x = a[m * am + k * ak];                                                                                  \
        _Pragma("GCC unroll 8") for (int n = 0; n < wide; n++) sum[m][n] += x * row[n];                                \
      }                                                                                                                \
    }                                                                                                                  \
    _Pragma("GCC unroll 8") for (int m = 0; m < tall; m++) _Pragma("GCC unroll 8") for (int n = 0; n < wide; n++)      \
        store(c + m * width + n * LANES, activated(sum[m][n], kind));                                                  \
    return;                                                                                                            \
  }

INLINE void tile(int tall, int wide, int64_t depth, const float *a, int64_t am, int64_t ak, const float *b,
                 int64_t across, float *c, int64_t width, const float *bias, int added, int kind) {
  if (wide == WIDE) {
    switch (tall) {
#if TALL == 6
    case 6: TILE(6, WIDE)
    case 5: TILE(5, WIDE)
#endif
    case 4: TILE(4, WIDE)
    case 3: TILE(3, WIDE)
    case 2: TILE(2, WIDE)
    default: TILE(1, WIDE)
    }
  }
  switch (tall) {
#if TALL == 6
  case 6: TILE(6, 1)
  case 5: TILE(5, 1)
#endif
  case 4: TILE(4, 1)
  case 3: TILE(3, 1)
  case 2: TILE(2, 1)
  default: TILE(1, 1)
  }
}

// C [height][length] = activation(A B + bias), or C += A B; `length` is a multiple of LANES.
static void product(int64_t height, int64_t length, int64_t depth, const float *a, int64_t am, int64_t ak,
                    const float *b, int64_t across, float *c, int64_t width, const float *bias, int added, int kind) {
  for (int64_t n = 0; n < length;) {
    int wide = n + WIDE * LANES <= length ? WIDE : 1;
    for (int64_t m = 0; m < height; m += TALL) {
      int tall = height - m < TALL ? height - m : TALL;
      tile(tall, wide, depth, a + m * am, am, ak, b + n, across, c + m * width + n, width, bias ? bias + m : 0, added,
           kind);
    }
    n += wide * LANES;
  }
}
