// Rectified layers, row by row. Where most units are 0, as in networks that have learned for a while, only the others
// are multiplied. Sums add the same numbers in the same order as those of blocks, except the biases' gradients.

typedef struct {
  int possible, ready;           // `ready`: `turned` holds the present weights
  double share;                  // time of the last block row by row, relative to computing it as a whole
  float *turned[LAYERS + HEADS]; // weights of each layer and head, [units before][units]
  float *rows[LAYERS + 1];       // [PLACES][padded(units)] of the inputs and of each layer
  int32_t *active[LAYERS + 1];   // [PLACES][padded(units) + LANES]: indices of those that are not 0
  int32_t *counts[LAYERS + 1];   // [PLACES]
  float *d, *next, *y;
} Sparse;

INLINE int64_t units_at(const Net *net, int64_t l) { return l ? net->units[l - 1] : net->inputs; }

static int64_t sparse_size(const Net *net) {
  int64_t size = 3 * (padded(widest(net)) + PLACES) + 64;
  for (int64_t l = 0; l <= net->layers; l++) {
    int64_t n = padded(units_at(net, l));
    size += PLACES * (2 * n + LANES + 1) + (l < net->layers ? n * padded(net->units[l]) : 0);
  }
  for (int64_t h = 0; h < net->heads; h++) size += (units_at(net, net->layers) + 1) * padded(net->outputs[h]);
  return size;
}

static float *taken(float **room, int64_t numbers) {
  float *here = *room;
  *room += padded(numbers);
  return here;
}

static Sparse sparse(const Net *net, float *room) {
  Sparse s = {.possible = net->activation == RELU && net->layers > 0 && net->heads > 0, .share = 2.0};
  room = aligned(room);
  for (int64_t l = 0; l <= net->layers; l++) {
    int64_t n = padded(units_at(net, l));
    if (l && net->units[l - 1] % LANES) s.possible = 0; // rows would run into each other
    s.rows[l] = taken(&room, PLACES * n), s.active[l] = (int32_t *)taken(&room, PLACES * (n + LANES));
    s.counts[l] = (int32_t *)taken(&room, PLACES);
    if (l < net->layers) s.turned[l] = taken(&room, n * net->units[l]);
  }
  int64_t most = 0;
  for (int64_t h = 0; h < net->heads; h++) {
    int64_t n = padded(net->outputs[h]);
    s.turned[net->layers + h] = taken(&room, units_at(net, net->layers) * n);
    most = n > most ? n : most;
  }
  s.d = taken(&room, widest(net)), s.next = taken(&room, widest(net)), s.y = taken(&room, most);
  return s;
}

static void turn(const float *weight, int64_t n, int64_t before, float *to) {
  if (before % LANES == 0) {
    transposed(weight, before, n, before, to);
    return;
  }
  for (int64_t u = 0; u < padded(n); u++)
    for (int64_t i = 0; i < before; i++) to[i * padded(n) + u] = u < n ? weight[u * before + i] : 0.0f;
}

static void turn_all(const Net *net, Sparse *s) {
  if (s->ready) return;
  s->ready = 1;
  for (int64_t l = 0; l < net->layers; l++) turn(net->weight[l], net->units[l], units_at(net, l), s->turned[l]);
  for (int64_t h = 0; h < net->heads; h++)
    turn(net->head_weight[h], net->outputs[h], units_at(net, net->layers), s->turned[net->layers + h]);
}

// Write the indices of the numbers of x [n] that are not 0, n a multiple of LANES; return their count.
static int32_t nonzero(const float *x, int64_t n, int32_t *to) {
  int32_t count = 0;
#if defined(__AVX512F__)
  ints number = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  for (int64_t i = 0; i < n; i += LANES, number += LANES) {
    __mmask16 found = _mm512_cmp_ps_mask((__m512)load(x + i), _mm512_setzero_ps(), _CMP_NEQ_UQ);
    _mm512_storeu_si512(to + count, _mm512_maskz_compress_epi32(found, (__m512i)number));
    count += __builtin_popcount(found);
  }
#else
  for (int64_t i = 0; i < n; i++) to[count] = i, count += x[i] != 0.0f;
#endif
  return count;
}

#define IN_PARTS(part, n)                                                                                              \
  for (int64_t i = 0; i < n;) {                                                                                        \
    int64_t left = (n - i) / LANES;                                                                                    \
    if (left >= 8) { part(8) i += 8 * LANES; }                                                                         \
    else if (left >= 4) { part(4) i += 4 * LANES; }                                                                    \
    else if (left >= 2) { part(2) i += 2 * LANES; }                                                                    \
    else { part(1) i += LANES; }                                                                                       \
  }

// y [n] += the sum over u of `which` of x[u] * weights[u], where weights have rows of n numbers.
static void add_rows(float *y, int64_t n, const float *x, const int32_t *which, int32_t count, const float *weights) {
#define PART(wide)                                                                                                     \
  vec sum[wide];                                                                                                       \
  _Pragma("GCC unroll 8") for (int k = 0; k < wide; k++) sum[k] = load(y + i + k * LANES);                             \
  for (int32_t c = 0; c < count; c++) {                                                                                \
    const float *row = weights + which[c] * n + i;                                                                     \
    float by = x[which[c]];                                                                                            \
    _Pragma("GCC unroll 8") for (int k = 0; k < wide; k++) sum[k] += by * load(row + k * LANES);                       \
  }                                                                                                                    \
  _Pragma("GCC unroll 8") for (int k = 0; k < wide; k++) store(y + i + k * LANES, sum[k]);
  IN_PARTS(PART, n)
#undef PART
}

// to[u] += d[u] * x for each u of `which`, where `to` has rows of n numbers.
static void add_to_rows(float *to, int64_t n, const float *d, const int32_t *which, int32_t count, const float *x) {
#define PART(wide)                                                                                                     \
  vec here[wide];                                                                                                      \
  _Pragma("GCC unroll 8") for (int k = 0; k < wide; k++) here[k] = load(x + i + k * LANES);                            \
  for (int32_t c = 0; c < count; c++) {                                                                                \
    float *row = to + which[c] * n + i, by = d[which[c]];                                                              \
    _Pragma("GCC unroll 8") for (int k = 0; k < wide; k++) store(row + k * LANES, load(row + k * LANES) + by * here[k]); \
  }
  IN_PARTS(PART, n)
#undef PART
}

// Compute outputs y[h] [outputs][PLACES] of rows of x, one by one; keep what `backward_rows` needs in s.
static void forward_rows(const Net *net, const float *x, const int32_t *which, int64_t rows, Sparse *s, float *const *y) {
  turn_all(net, s);
  int64_t across = padded(net->inputs), last = net->layers;
  for (int64_t r = 0; r < rows; r++) {
    float *from = s->rows[0] + r * across;
    memcpy(from, x + (which ? which[r] : r) * net->inputs, sizeof(float) * net->inputs);
    memset(from + net->inputs, 0, sizeof(float) * (across - net->inputs));
    int32_t *active = s->active[0] + r * (across + LANES);
    int32_t count = s->counts[0][r] = nonzero(from, across, active);
    for (int64_t l = 0; l < last; l++) {
      int64_t n = net->units[l];
      float *to = s->rows[l + 1] + r * n;
      for (int64_t u = 0; u < n; u += LANES) store(to + u, load(net->bias[l] + u));
      add_rows(to, n, from, active, count, s->turned[l]);
      for (int64_t u = 0; u < n; u += LANES) store(to + u, most(load(to + u), 0.0f));
      from = to, active = s->active[l + 1] + r * (n + LANES);
      count = s->counts[l + 1][r] = nonzero(from, n, active);
    }
    for (int64_t h = 0; h < net->heads; h++) {
      int64_t n = net->outputs[h];
      memset(s->y, 0, sizeof(float) * padded(n));
      memcpy(s->y, net->head_bias[h], sizeof(float) * n);
      add_rows(s->y, padded(n), from, active, count, s->turned[last + h]);
      for (int64_t u = 0; u < n; u++) y[h][u * PLACES + r] = s->y[u];
    }
  }
  for (int64_t h = 0; h < net->heads; h++)
    for (int64_t u = 0; u < net->outputs[h]; u++)
      for (int64_t r = rows; r < padded(rows); r++) y[h][u * PLACES + r] = 0.0f;
}

// Add these rows' part of the gradient, by derivatives dy[h] [outputs][PLACES] at the outputs.
static void backward_rows(const Net *net, int64_t rows, Sparse *s, float *const *dy, float *gradient) {
  int64_t last = net->layers, n = net->units[last - 1];
  float *of[LAYERS + HEADS];
  for (int64_t l = 0, before = net->inputs; l < last + net->heads; l++) {
    int64_t here = l < last ? net->units[l] : net->outputs[l - last];
    of[l] = gradient, gradient += layer_size(here, before);
    if (l < last) before = here;
  }
  for (int64_t r = 0; r < rows; r++) {
    memset(s->d, 0, sizeof(float) * n);
    for (int64_t h = 0; h < net->heads; h++) {
      float *biases = of[last + h] + net->outputs[h] * n;
      for (int64_t a = 0; a < net->outputs[h]; a++) {
        float d = dy[h][a * PLACES + r], *to = of[last + h] + a * n;
        const float *weight = net->head_weight[h] + a * n, *y = s->rows[last] + r * n;
        for (int64_t u = 0; u < n; u += LANES) {
          store(s->d + u, load(s->d + u) + d * load(weight + u));
          store(to + u, load(to + u) + d * load(y + u));
        }
        biases[a] += d;
      }
    }
    for (int64_t l = last; l > 0; l--) {
      int64_t here = net->units[l - 1], across = padded(units_at(net, l - 1));
      const int32_t *active = s->active[l] + r * (here + LANES), count = s->counts[l][r];
      float *biases = of[l - 1] + here * across;
      add_to_rows(of[l - 1], across, s->d, active, count, s->rows[l - 1] + r * across);
      for (int32_t c = 0; c < count; c++) biases[active[c]] += s->d[active[c]];
      if (l == 1) break;
      memset(s->next, 0, sizeof(float) * across);
      add_rows(s->next, across, s->d, active, count, net->weight[l - 1]);
      float *done = s->d;
      s->d = s->next, s->next = done;
    }
  }
}

// Return the time of rows with so many active units in each layer, relative to that of whole blocks: as measured.
static double share_of(const Net *net, const double *active) {
  double rows = 0, blocks = 0;
  for (int64_t l = 1; l <= net->layers; l++) {
    double before = units_at(net, l - 1), here = units_at(net, l);
    rows += 1.6 * active[l - 1] * here + (l > 1 ? 4.5 : 3.0) * active[l] * padded(before);
    blocks += (l > 1 ? 3 : 2) * before * here;
  }
  return rows / blocks;
}

static void find_share(const Net *net, const float *inputs, const float *layers, int64_t rows, Sparse *s, int by_rows) {
  double active[LAYERS + 1];
  for (int64_t l = 0; l <= net->layers; l++) {
    int64_t count = 0, n = units_at(net, l);
    if (by_rows)
      for (int64_t r = 0; r < rows; r++) count += s->counts[l][r];
    else
      for (int64_t i = 0; i < n; i++)
        for (int64_t r = 0; r < rows; r++) count += (l ? layers : inputs)[i * PLACES + r] != 0.0f;
    active[l] = (double)count / rows;
    if (l) layers += n * PLACES;
  }
  s->share = share_of(net, active);
}

// Do as `forward_pair` for a block's outputs and values, for networks in `by_rows` row by row; then find what pays.
static void forward_sparse(const Pair *two, const float *x, const int32_t *which, int64_t m, Sparse *rarely,
                           int *by_rows) {
  const Net *policy = two->policy, *value = two->value;
  for (int i = 0; i < 2; i++) by_rows[i] = rarely[i].possible && rarely[i].share < 1;
  if (!by_rows[0] || (value && !by_rows[1])) take_in(policy, x, which, m, two->inputs);
  if (by_rows[0]) {
    forward_rows(policy, x, which, m, rarely, two->of_policy.out);
  } else {
    const float *last = hidden(policy, two->inputs, m, two->layers);
    for (int64_t h = 0; h < policy->heads; h++) head(policy, h, last, m, two->of_policy.out[h]);
  }
  if (value && by_rows[1])
    forward_rows(value, x, which, m, rarely + 1, two->of_value.out);
  else if (value)
    head(value, 0, hidden(value, two->inputs, m, two->others), m, two->v);
  if (rarely[0].possible) find_share(policy, two->inputs, two->layers, m, rarely, by_rows[0]);
  if (value && rarely[1].possible) find_share(value, two->inputs, two->others, m, rarely + 1, by_rows[1]);
}
