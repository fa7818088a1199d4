// Perceptrons in blocks of rows that stay in the processor's cache: forward, backward, and draws of Discrete actions.
//
// Within a block numbers lie by unit and then by row, [units][PLACES], so that every loop goes over rows: weights are
// read as torch keeps them, and layers of any width need no padding. Vectors are the compiler's own extension (GCC,
// Clang); their width is that of the machine compiled for.
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
#define LAYERS 16 // at most: hidden layers
#define HEADS 2   // at most
#define INLINE static inline __attribute__((always_inline))

typedef float vec __attribute__((vector_size(4 * LANES)));
typedef int32_t ints __attribute__((vector_size(4 * LANES)));
typedef float loose __attribute__((vector_size(4 * LANES), aligned(4), may_alias)); // where alignment is unknown

enum { TANH, RELU, ELU, SILU, NONE };

typedef struct {
  int64_t inputs, layers, heads, activation;
  int64_t units[LAYERS];
  const float *weight[LAYERS], *bias[LAYERS]; // [units][units before]
  int64_t outputs[HEADS];                     // of each head, linear layers side by side after the last hidden one
  const float *head_weight[HEADS], *head_bias[HEADS];
} Net;

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

// Of 1 + r + r^2 (EXP2 + EXP3 r + ...), fitted to e^r where |r| <= log(2) / 2: the error is below 4e-9.
#define EXP2 4.999999343e-01f
#define EXP3 1.666652040e-01f
#define EXP4 4.166839077e-02f
#define EXP5 8.368745131e-03f
#define EXP6 1.381454072e-03f

// e^x within 2e-7 of itself, for x cut to [-87, 88], as 2^n e^r.
INLINE vec exponential(vec x) {
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
  p = p * r + 1.0f;
  return (vec)((ints)p + (((ints)shifted - (ints)all(magic)) << 23));
}

INLINE vec activated(vec z, int kind) {
  switch (kind) {
  case TANH: {
    vec e = exponential(2.0f * most(least(z, 9.0f), -9.0f));
    return 1.0f - 2.0f * inverse(e + 1.0f);
  }
  case RELU: return most(z, 0.0f);
  case ELU: return choose(z > all(0.0f), z, exponential(least(z, 0.0f)) - 1.0f);
  case SILU: return z * inverse(1.0f + exponential(-z));
  default: return z;
  }
}

// A tile of C = A B: `tall` x `wide` vectors, over `depth`; A(m, k) stands at a[m * am + k * ak].
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

INLINE int64_t padded(int64_t n) { return (n + LANES - 1) / LANES * LANES; }

// x [rows][inputs] by row, or its rows `which` -> [inputs][PLACES] by input; places behind the rows repeat the last one.
static void take_in(const Net *net, const float *x, const int32_t *which, int64_t rows, float *to) {
  int64_t places = padded(rows), n = net->inputs;
  for (int64_t i = 0; i < n; i++) {
    float *into = to + i * PLACES;
    for (int64_t r = 0; r < rows; r++) into[r] = x[(which ? which[r] : r) * n + i];
    for (int64_t r = rows; r < places; r++) into[r] = into[rows - 1];
  }
}

// Rows by the kinds that they are of: in small games the same observations come again and again, and what a network says
// of them is computed once.
typedef struct {
  int64_t count;              // of kinds; of rows where each is one of its own, and the pointers are null
  const int32_t *first;       // [count]: a row of each kind
  const int32_t *begin, *row; // [count + 1], [rows]: the rows of a kind k are those from row[begin[k]] on
  const int32_t *kind;        // [rows]
} Kinds;

#define TRIED 256 // rows after which equal ones are looked for no more, where over three quarters differ

// Numbers that `room` of `kinds` is to have.
int64_t kinds_size(int64_t rows) { return 8 * rows + 2 * TRIED; }

static Kinds kinds(const float *x, int64_t rows, int64_t inputs, float *room) {
  const Kinds none = {rows, 0, 0, 0, 0};
  if (rows < 2 * PLACES) return none;
  int64_t size = TRIED, count = 0, bytes = inputs * sizeof(float);
  while (size < 2 * rows) size *= 2;
  int32_t *table = (int32_t *)room, *first = table + size, *begin = first + rows, *row = begin + rows + 1;
  int32_t *kind = row + rows;
  memset(table, -1, size * sizeof(int32_t));
  for (int64_t r = 0; r < rows; r++) {
    const char *at = (const char *)(x + r * inputs);
    uint64_t hash = 0, word;
    for (int64_t i = 0; i < bytes; i += sizeof(word)) {
      word = 0;
      memcpy(&word, at + i, bytes - i < (int64_t)sizeof(word) ? bytes - i : (int64_t)sizeof(word));
      hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
      hash ^= hash >> 29;
    }
    hash *= 0x9E3779B97F4A7C15u; // or what tells the last inputs apart would not come down to the bits below
    hash ^= hash >> 32;
    int64_t place = hash & (size - 1);
    while (table[place] >= 0 && memcmp(x + first[table[place]] * inputs, at, bytes)) place = (place + 1) & (size - 1);
    if (table[place] < 0) table[place] = count, first[count++] = r;
    kind[r] = table[place];
    if ((r + 1 == TRIED || r + 1 == rows) && 4 * count > 3 * (r + 1)) return none;
  }
  memset(begin, 0, (count + 1) * sizeof(int32_t));
  for (int64_t r = 0; r < rows; r++) begin[kind[r] + 1]++;
  for (int64_t k = 0; k < count; k++) begin[k + 1] += begin[k];
  for (int64_t r = 0; r < rows; r++) row[begin[kind[r]]++] = r; // each then is where the next kind begins
  memmove(begin + 1, begin, count * sizeof(int32_t)), begin[0] = 0;
  return (Kinds){count, first, begin, row, kind};
}

// y [units][PLACES] of a block of kinds, from the kind `first` on -> that of these rows.
static void spread(const float *y, int64_t units, const Kinds *of, int64_t first, const int32_t *which, int64_t rows,
                   float *to) {
  for (int64_t u = 0; u < units; u++)
    for (int64_t r = 0; r < padded(rows); r++)
      to[u * PLACES + r] = y[u * PLACES + of->kind[which[r < rows ? r : rows - 1]] - first];
}

// Columns [rows][width] of any `size` of numbers: the rows `which`.
static void *gathered(const void *from, int64_t width, int64_t size, const int32_t *which, int64_t rows, void *to) {
  for (int64_t r = 0; r < rows; r++)
    memcpy((char *)to + r * width * size, (const char *)from + which[r] * width * size, width * size);
  return to;
}

// The hidden layers of one block, each [units][PLACES], the first at `layers`; returns the last, or the inputs.
static const float *hidden(const Net *net, const float *inputs, int64_t rows, float *layers) {
  const float *from = inputs;
  int64_t before = net->inputs;
  for (int64_t l = 0; l < net->layers; l++) {
    product(net->units[l], padded(rows), before, net->weight[l], before, 1, from, PLACES, layers, PLACES, net->bias[l],
            0, net->activation);
    from = layers, before = net->units[l], layers += before * PLACES;
  }
  return from;
}

static void head(const Net *net, int64_t h, const float *last, int64_t rows, float *y) {
  int64_t before = net->layers ? net->units[net->layers - 1] : net->inputs;
  product(net->outputs[h], padded(rows), before, net->head_weight[h], before, 1, last, PLACES, y, PLACES,
          net->head_bias[h], 0, NONE);
}

static void by_row(const float *y, int64_t units, int64_t rows, float *to) {
  for (int64_t r = 0; r < rows; r++)
    for (int64_t u = 0; u < units; u++) to[r * units + u] = y[u * PLACES + r];
}

static void by_unit(const float *y, int64_t units, int64_t rows, float *to) {
  for (int64_t u = 0; u < units; u++)
    for (int64_t r = 0; r < padded(rows); r++) to[u * PLACES + r] = r < rows ? y[r * units + u] : 0.0f;
}

static float *aligned(float *work) { return (float *)(((uintptr_t)work + 63) & ~(uintptr_t)63); }

static int64_t units(const Net *net) {
  int64_t n = 0;
  for (int64_t l = 0; l < net->layers; l++) n += net->units[l];
  return n;
}

// Numbers that `kept` is to have room for.
int64_t kept_size(const Net *net, int64_t rows) { return ((rows + PLACES - 1) / PLACES * units(net) + 1) * PLACES; }

// y[h] [rows][outputs] of x [rows][inputs]; without a head y[0] is the last hidden layer itself. `kept`, if it is not
// null, is what `backward` needs.
void forward(const Net *net, const float *x, int64_t rows, float *const *y, float *kept, float *work) {
  float *inputs = aligned(work), *layers = inputs + net->inputs * PLACES, *out = layers + units(net) * PLACES;
  kept = kept ? aligned(kept) : 0;
  for (int64_t first = 0; first < rows; first += PLACES) {
    int64_t n = rows - first < PLACES ? rows - first : PLACES;
    take_in(net, x + first * net->inputs, 0, n, inputs);
    const float *last = hidden(net, inputs, n, kept ? kept + first * units(net) : layers);
    if (!net->heads) by_row(last, net->units[net->layers - 1], n, y[0] + first * net->units[net->layers - 1]);
    for (int64_t h = 0; h < net->heads; h++) {
      if (!y[h]) continue;
      head(net, h, last, n, out);
      by_row(out, net->outputs[h], n, y[h] + first * net->outputs[h]);
    }
  }
}

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

// x [n][PLACES] -> [PLACES][padded(n)], of the first `rows` places at least.
static void transposed(const float *x, int64_t n, int64_t rows, float *to) {
  int64_t across = padded(n);
  for (int64_t u = 0; u < n; u += LANES)
    for (int64_t r = 0; r < rows; r += LANES) {
      vec a[LANES], b[LANES];
      for (int i = 0; i < LANES; i++) a[i] = u + i < n ? load(x + (u + i) * PLACES + r) : all(0.0f);
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

// Add to the gradient of a layer, [units][padded(before)] and [units] of the biases, that of d [units][PLACES] at it.
static void weigh(const float *d, int64_t n, int64_t inputs, int64_t rows, float *turned,
                    float *gradient) {
  product(n, padded(inputs), rows, d, PLACES, 1, turned, padded(inputs), gradient, padded(inputs), 0, 1, NONE);
  gradient += n * padded(inputs);
  for (int64_t u = 0; u < n; u++) {
    vec sum = all(0.0f);
    for (int64_t r = 0; r < padded(rows); r += LANES) sum += load(d + u * PLACES + r);
    gradient[u] += total(sum);
  }
}

static void slope(const float *y, float *d, int64_t numbers, int kind) {
  for (int64_t i = 0; i < numbers; i += LANES) {
    vec h = load(y + i), g = load(d + i);
    switch (kind) {
    case TANH: g = g * (1.0f - h * h); break;
    case RELU: g = choose(h > all(0.0f), g, all(0.0f)); break;
    case ELU: g = choose(h > all(0.0f), g, g * (h + 1.0f)); break;
    }
    store(d + i, g);
  }
}

static int64_t layer_size(int64_t n, int64_t before) { return n * padded(before) + padded(n); }

// Numbers that `gradient` is to have room for.
int64_t gradient_size(const Net *net) {
  int64_t size = 0, before = net->inputs;
  for (int64_t l = 0; l < net->layers; l++) size += layer_size(net->units[l], before), before = net->units[l];
  for (int64_t h = 0; h < net->heads; h++) size += layer_size(net->outputs[h], before);
  return size + 16;
}

// Where `backward_block` works: [outputs][PLACES] of each head, and the rest.
typedef struct {
  float *out[HEADS], *turned, *d, *next;
} Space;

static int64_t widest(const Net *net) {
  int64_t wide = net->inputs;
  for (int64_t l = 0; l < net->layers; l++) wide = net->units[l] > wide ? net->units[l] : wide;
  return wide;
}

static Space space(const Net *net, float *at) {
  Space s;
  for (int64_t h = 0; h < HEADS; h++) s.out[h] = at, at += (h < net->heads ? net->outputs[h] : 0) * PLACES;
  s.turned = at, at += padded(widest(net)) * PLACES;
  s.d = at, s.next = at + widest(net) * PLACES;
  return s;
}

// Add a block's part of the gradient, by the inputs and the hidden layers of the block. Derivatives are in s.out of the
// heads that `given` names, without heads in s.d; 0 behind the rows. Returns those at the inputs, if `at_inputs`.
static const float *backward_block(const Net *net, const float *inputs, const float *layers, int64_t m, Space s,
                                   const int *given, int at_inputs, float *gradient) {
  int64_t l = net->layers, places = padded(m), of_last = l ? net->units[l - 1] : net->inputs;
  const float *last = l ? layers + (units(net) - of_last) * PLACES : inputs;
  float *to = gradient;
  for (int64_t i = 0, before = net->inputs; i < l; i++) to += layer_size(net->units[i], before), before = net->units[i];
  transposed(last, of_last, m, s.turned);
  float *of_head = to;
  for (int64_t h = 0, added = 0; h < net->heads; h++) {
    if (given[h]) {
      weigh(s.out[h], net->outputs[h], of_last, m, s.turned, of_head);
      product(of_last, places, net->outputs[h], net->head_weight[h], 1, of_last, s.out[h], PLACES, s.d, PLACES, 0,
              added, NONE);
      added = 1;
    }
    of_head += layer_size(net->outputs[h], of_last);
  }
  for (; l > 0; l--) {
    int64_t here = net->units[l - 1], before = l > 1 ? net->units[l - 2] : net->inputs;
    to -= layer_size(here, before);
    for (int64_t u = 0; u < here; u++) slope(last + u * PLACES, s.d + u * PLACES, places, net->activation);
    last = l > 1 ? last - before * PLACES : inputs;
    transposed(last, before, m, s.turned);
    weigh(s.d, here, before, m, s.turned, to);
    if (l == 1 && !at_inputs) break;
    product(before, places, here, net->weight[l - 1], 1, before, s.d, PLACES, s.next, PLACES, 0, 0, NONE);
    float *done = s.d;
    s.d = s.next, s.next = done;
  }
  return s.d;
}

// Numbers that `work` is to have room for, in functions of this network.
int64_t work_size(const Net *net) {
  int64_t outputs = 0;
  for (int64_t h = 0; h < net->heads; h++) outputs += net->outputs[h];
  return (net->inputs + units(net) + 12 * outputs + 3 * widest(net) + LANES + 8) * PLACES;
}

// The gradient of a sum whose derivatives at the outputs are dy[h] [rows][outputs] (null: 0), by what `forward` kept;
// and dx [rows][inputs], that at the inputs, unless it is null. `collect` takes the gradient on.
void backward(const Net *net, const float *x, int64_t rows, const float *kept, const float *const *dy, float *dx,
              float *gradient, float *work) {
  int64_t n = units(net);
  float *inputs = aligned(work);
  Space s = space(net, inputs + net->inputs * PLACES);
  memset(gradient, 0, sizeof(float) * gradient_size(net));
  kept = aligned((float *)kept), gradient = aligned(gradient);
  int given[HEADS] = {dy[0] != 0, dy[1] != 0};
  for (int64_t first = 0; first < rows; first += PLACES) {
    int64_t m = rows - first < PLACES ? rows - first : PLACES;
    take_in(net, x + first * net->inputs, 0, m, inputs);
    if (!net->heads) by_unit(dy[0] + first * net->units[net->layers - 1], net->units[net->layers - 1], m, s.d);
    for (int64_t h = 0; h < net->heads; h++)
      if (dy[h]) by_unit(dy[h] + first * net->outputs[h], net->outputs[h], m, s.out[h]);
    const float *at_inputs = backward_block(net, inputs, kept + first * n, m, s, given, dx != 0, gradient);
    if (dx) by_row(at_inputs, net->inputs, m, dx + first * net->inputs);
  }
}

// The sum of `parts` gradients of `backward`, `apart` numbers from each other, as torch lays out parameters: weight and
// bias of each layer, then of each head.
void collect(const Net *net, float *gradient, int64_t parts, int64_t apart, float *to) {
  for (int64_t p = 0; p < parts; p++) {
    const float *from = aligned(gradient + p * apart);
    int64_t before = net->inputs;
    float *into = to;
    for (int64_t l = 0; l < net->layers + net->heads; l++) {
      int64_t n = l < net->layers ? net->units[l] : net->outputs[l - net->layers];
      for (int64_t u = 0; u <= n; u++) { // the last of these is the bias
        int64_t length = u < n ? before : n;
        for (int64_t i = 0; i < length; i++) into[i] = (p ? into[i] : 0.0f) + from[i];
        into += length, from += padded(length);
      }
      if (l < net->layers) before = n;
    }
  }
}

enum { LIKELIEST, UNIFORM, EXPONENTIAL };
#define ILLEGAL -1e8f

static void forbid(float *z, int64_t n, int64_t rows, const uint8_t *mask) {
  for (int64_t a = 0; a < n; a++)
    for (int64_t r = 0; r < rows; r++)
      if (!mask[r * n + a]) z[a * PLACES + r] = ILLEGAL;
}

// Draw one block's actions of logits z [actions][PLACES], which are masked in place, by a number for each row or, of
// EXPONENTIAL, for each row and action. In a row with NaN it is a legal one, whose log-probability is NaN.
static void draw(float *z, int64_t n, int64_t rows, const uint8_t *mask, int by, const float *chance, int64_t *action,
                 float *log_prob, float *p) {
  int64_t places = padded(rows);
  float uniform[PLACES] = {0}, sums[PLACES], tops[PLACES], chosen[PLACES];
  if (mask) forbid(z, n, rows, mask);
  if (by == UNIFORM) memcpy(uniform, chance, sizeof(float) * rows);
  for (int64_t r = 0; r < places; r += LANES) {
    vec top = load(z + r), sum = all(0.0f);
    for (int64_t a = 1; a < n; a++) {
      vec x = load(z + a * PLACES + r);
      top = choose((x > top) | (x != x), x, top);
    }
    for (int64_t a = 0; a < n; a++) {
      vec x = load(z + a * PLACES + r);
      vec e = choose((x < all(ILLEGAL / 2)) & ~(top <= all(ILLEGAL / 2)), all(0.0f), exponential(x - top));
      store(p + a * PLACES + r, e);
      sum += e;
    }
    vec limit = load(uniform + r) * sum, before = all(0.0f), found = all(0.0f);
    if (by != UNIFORM) // from the last on, so that of equal ones the first is taken
      for (int64_t a = n - 1; a >= 0; a--)
        found = choose(~(load(z + a * PLACES + r) < top) & ~(load(p + a * PLACES + r) <= all(0.0f)), all((float)a), found);
    if (by == UNIFORM)
      for (int64_t a = 0; a < n; a++) {
        vec e = load(p + a * PLACES + r);
        found = choose(~(e <= all(0.0f)) & ~(before > limit), all((float)a), found);
        before += e;
      }
    store(chosen + r, found);
    store(tops + r, top);
    store(sums + r, sum);
  }
  for (int64_t r = 0; r < rows; r++) {
    int64_t a = chosen[r];
    float best = 0.0f;
    for (int64_t i = 0; by == EXPONENTIAL && i < n; i++) { // argmax(log p - log E), without the logarithms
      float score = p[i * PLACES + r] / chance[r * n + i];
      if (score > best) best = score, a = i;
    }
    action[r] = a;
    log_prob[r] = z[a * PLACES + r] - tops[r] - logf(sums[r]);
  }
}

// Actions int64 [rows] and their log-probabilities [rows], by logits of the first head, and the value [rows][values] if
// `value` is not null: of `other`, or of the second head where that is null. `mask` [rows][actions] may be null. `work`
// is for both, one behind the other, and for `kinds`.
void act(const Net *net, const Net *other, const float *x, int64_t rows, const uint8_t *mask, int64_t by,
         const float *chance, int64_t *action, float *log_prob, float *value, float *work) {
  int64_t n = net->outputs[0], values = other ? other->outputs[0] : net->outputs[1], one = by == EXPONENTIAL ? n : 1;
  float *inputs = aligned(work), *layers = inputs + net->inputs * PLACES, *z = layers + units(net) * PLACES;
  float *of_row = z + n * PLACES, *p = of_row + n * PLACES, *chances = p + n * PLACES, *v = chances + n * PLACES;
  uint8_t *masks = (uint8_t *)(v + net->outputs[1] * PLACES);
  work += work_size(net);
  float *others = aligned(work);
  if (other) v = others + units(other) * PLACES, work += work_size(other);
  Kinds of = kinds(x, rows, net->inputs, work);
  for (int64_t first = 0; first < of.count; first += PLACES) {
    int64_t m = of.count - first < PLACES ? of.count - first : PLACES;
    take_in(net, of.kind ? x : x + first * net->inputs, of.kind ? of.first + first : 0, m, inputs);
    const float *last = hidden(net, inputs, m, layers);
    head(net, 0, last, m, z);
    if (value && other)
      head(other, 0, hidden(other, inputs, m, others), m, v);
    else if (value)
      head(net, 1, last, m, v);
    if (!of.kind) {
      draw(z, n, m, mask ? mask + first * n : 0, by, chance ? chance + first * one : 0, action + first,
           log_prob + first, p);
      if (value) by_row(v, values, m, value + first * values);
      continue;
    }
    for (int64_t i = of.begin[first], end = of.begin[first + m]; i < end; i += PLACES) {
      const int32_t *which = of.row + i;
      int64_t here = end - i < PLACES ? end - i : PLACES, actions[PLACES];
      float log_probs[PLACES];
      spread(z, n, &of, first, which, here, of_row);
      if (mask) gathered(mask, n, 1, which, here, masks);
      if (chance) gathered(chance, one, sizeof(float), which, here, chances);
      draw(of_row, n, here, mask ? masks : 0, by, chance ? chances : 0, actions, log_probs, p);
      for (int64_t r = 0; r < here; r++) {
        action[which[r]] = actions[r], log_prob[which[r]] = log_probs[r];
        for (int64_t u = 0; value && u < values; u++)
          value[which[r] * values + u] = v[u * PLACES + of.kind[which[r]] - first];
      }
    }
  }
}

enum { TEACHER, MAGNET, LAST, ANCHORS }; // policies that the loss keeps this one near

typedef struct {
  double rows, clip, clip_value, value_coefficient, entropy_coefficient; // rows: of the minibatch; clip_value < 0: none
  double anchored[ANCHORS];                                              // coefficients of the divergences
} Surrogate;

// Columns of a minibatch, by row. `mask` bool [rows][actions] may be null, and so may the anchors' logits [rows][actions].
typedef struct {
  const float *x; // [rows][inputs]
  const uint8_t *mask;
  const int64_t *action;
  const float *log_prob, *advantage, *target, *old_value;
  const float *anchors[ANCHORS];
} Steps;

static Steps from(Steps s, int64_t first, int64_t inputs, int64_t actions) {
  s.x += first * inputs, s.mask += s.mask ? first * actions : 0, s.action += first;
  s.log_prob += first, s.advantage += first, s.target += first, s.old_value += first;
  for (int k = 0; k < ANCHORS; k++) s.anchors[k] += s.anchors[k] ? first * actions : 0;
  return s;
}

enum { POLICY_LOSS, VALUE_LOSS, ENTROPY, KL, CLIPPED, OF_ANCHORS, TERMS = OF_ANCHORS + ANCHORS };

// Logits z [actions][PLACES] become log-probabilities; p are the probabilities.
static void log_softmax(float *z, int64_t n, int64_t rows, float *p) {
  int64_t places = padded(rows);
  float tops[PLACES], logs[PLACES];
  for (int64_t r = 0; r < places; r += LANES) {
    vec top = load(z + r), sum = all(0.0f);
    for (int64_t a = 1; a < n; a++) {
      vec x = load(z + a * PLACES + r);
      top = choose(x > top, x, top);
    }
    for (int64_t a = 0; a < n; a++) sum += exponential(load(z + a * PLACES + r) - top);
    store(tops + r, top);
    store(logs + r, sum);
  }
  for (int64_t r = 0; r < places; r++) logs[r] = tops[r] + logf(logs[r]);
  for (int64_t a = 0; a < n; a++)
    for (int64_t r = 0; r < places; r += LANES) {
      vec l = load(z + a * PLACES + r) - load(logs + r);
      store(p + a * PLACES + r, choose(l < all(ILLEGAL / 2), all(0.0f), exponential(l)));
      store(z + a * PLACES + r, l);
    }
}

// sums [PLACES] = sum over the actions of p (l - other), each [actions][PLACES]; other null: of p l.
static void expectation(const float *p, const float *l, const float *other, int64_t n, int64_t rows, float *sums) {
  for (int64_t r = 0; r < padded(rows); r += LANES) {
    vec sum = all(0.0f);
    for (int64_t a = 0; a < n; a++) {
      vec of = load(l + a * PLACES + r);
      sum += load(p + a * PLACES + r) * (other ? of - load(other + a * PLACES + r) : of);
    }
    store(sums + r, sum);
  }
}

// Add to d [actions][PLACES] the derivatives of a divergence between the policy, of log-probabilities l and
// probabilities p, and an anchor of these logits: KL(teacher || policy), else KL(policy || anchor). Returns its sum.
static double anchored(int kind, const float *logits, float coefficient, const float *l, const float *p, int64_t n,
                       int64_t rows, float *d, float *work) {
  float *other = work, *of_other = work + n * PLACES, divergence[PLACES];
  double sum = 0;
  by_unit(logits, n, rows, other);
  log_softmax(other, n, rows, of_other);
  if (kind == TEACHER)
    expectation(of_other, other, l, n, rows, divergence);
  else
    expectation(p, l, other, n, rows, divergence);
  for (int64_t r = 0; r < rows; r++) sum += divergence[r];
  for (int64_t a = 0; a < n; a++)
    for (int64_t r = 0; r < padded(rows); r += LANES) {
      int64_t i = a * PLACES + r;
      vec of = load(p + i), by = kind == TEACHER ? of - load(of_other + i)
                                                 : of * (load(l + i) - load(other + i) - load(divergence + r));
      store(d + i, load(d + i) + coefficient * by);
    }
  return sum;
}

// The derivatives of PPO's loss at one block's logits z [actions][PLACES] and values v [PLACES], which they replace. The
// loss's terms, times the rows, are added to `terms`. `work`: 4 [actions][PLACES].
static void surrogate(float *z, int64_t n, float *v, int64_t rows, const Steps *s, const Surrogate *of, double *terms,
                      float *work) {
  int64_t places = padded(rows);
  float share = 1.0 / of->rows, entropies[PLACES], of_log_prob[PLACES] = {0};
  float clip = of->clip, bonus = of->entropy_coefficient * share, *p = work, *added = work + n * PLACES;
  int any = 0;
  if (s->mask) forbid(z, n, rows, s->mask);
  log_softmax(z, n, rows, p);
  expectation(p, z, 0, n, rows, entropies);
  for (int64_t r = 0; r < places; r++) entropies[r] = -entropies[r];
  for (int64_t r = 0; r < rows; r++) {
    float change = z[s->action[r] * PLACES + r] - s->log_prob[r], ratio = expf(change), a = s->advantage[r];
    float cut = ratio < 1 - clip ? 1 - clip : ratio > 1 + clip ? 1 + clip : ratio;
    float gain = ratio * a <= cut * a ? ratio * a : cut * a;
    if (ratio != ratio) gain = ratio;
    of_log_prob[r] = ratio * a <= cut * a ? -a * ratio * share : 0.0f;
    float error = v[r] - s->target[r], worst = error, slope = 1.0f;
    if (of->clip_value >= 0) {
      float limit = of->clip_value, moved = v[r] - s->old_value[r];
      float held = moved < -limit ? -limit : moved > limit ? limit : moved;
      float other = s->old_value[r] + held - s->target[r];
      if (other * other > error * error) worst = other, slope = held == moved ? 1.0f : 0.0f;
    }
    v[r] = 2 * worst * slope * (float)of->value_coefficient * share;
    terms[POLICY_LOSS] -= gain, terms[VALUE_LOSS] += worst * worst, terms[ENTROPY] += entropies[r];
    terms[KL] += ratio - 1 - change, terms[CLIPPED] += fabsf(ratio - 1) > clip;
  }
  for (int64_t r = rows; r < places; r++) v[r] = 0;
  for (int k = 0; k < ANCHORS; k++) {
    if (!s->anchors[k]) continue;
    if (!any++) memset(added, 0, sizeof(float) * n * PLACES);
    terms[OF_ANCHORS + k] += anchored(k, s->anchors[k], of->anchored[k] * share, z, p, n, rows, added, added + n * PLACES);
  }
  for (int64_t a = 0; a < n; a++)
    for (int64_t r = 0; r < places; r++) {
      float e = p[a * PLACES + r], l = z[a * PLACES + r];
      float d = bonus * e * (l + entropies[r]) - of_log_prob[r] * e;
      if (any) d += added[a * PLACES + r];
      z[a * PLACES + r] = r < rows ? d : 0.0f;
    }
  for (int64_t r = 0; r < rows; r++)
    if (!s->mask || s->mask[r * n + s->action[r]]) z[s->action[r] * PLACES + r] += of_log_prob[r];
}

// `surrogate` of the rows of m kinds, from the kind `first` on: z and v are the kinds', and so are the derivatives.
// `work`: 11 [actions][PLACES].
static void surrogate_of_kinds(float *z, int64_t n, float *v, const Kinds *of, int64_t first, int64_t m,
                               const Steps *steps, const Surrogate *how, double *terms, float *work) {
  float *d = work, *of_row = d + n * PLACES, *room = of_row + n * PLACES, columns[4][PLACES], dv[PLACES] = {0};
  float *anchors = room + 5 * n * PLACES, value[PLACES];
  uint8_t *mask = (uint8_t *)(room + 4 * n * PLACES);
  int64_t action[PLACES];
  memset(d, 0, sizeof(float) * n * PLACES);
  for (int64_t i = of->begin[first], end = of->begin[first + m]; i < end; i += PLACES) {
    const int32_t *which = of->row + i;
    int64_t rows = end - i < PLACES ? end - i : PLACES;
    Steps s = {0};
    if (steps->mask) s.mask = gathered(steps->mask, n, 1, which, rows, mask);
    s.action = gathered(steps->action, 1, sizeof(int64_t), which, rows, action);
    s.log_prob = gathered(steps->log_prob, 1, sizeof(float), which, rows, columns[0]);
    s.advantage = gathered(steps->advantage, 1, sizeof(float), which, rows, columns[1]);
    s.target = gathered(steps->target, 1, sizeof(float), which, rows, columns[2]);
    s.old_value = gathered(steps->old_value, 1, sizeof(float), which, rows, columns[3]);
    for (int k = 0; k < ANCHORS; k++)
      if (steps->anchors[k])
        s.anchors[k] = gathered(steps->anchors[k], n, sizeof(float), which, rows, anchors + k * n * PLACES);
    spread(z, n, of, first, which, rows, of_row);
    spread(v, 1, of, first, which, rows, value);
    surrogate(of_row, n, value, rows, &s, how, terms, room);
    for (int64_t r = 0; r < rows; r++) {
      int64_t k = of->kind[which[r]] - first;
      for (int64_t a = 0; a < n; a++) d[a * PLACES + k] += of_row[a * PLACES + r];
      dv[k] += value[r];
    }
  }
  memcpy(z, d, sizeof(float) * n * PLACES);
  memcpy(v, dv, sizeof(float) * PLACES);
}

// The gradient of PPO's loss over some rows of a minibatch, and the sums of its terms over them. `value` is null where
// it is the second head of `policy`. `work` is for both, one behind the other, and for `kinds`.
void ppo(const Net *policy, const Net *value, const Steps *steps, int64_t rows, const Surrogate *how, double *terms,
         float *of_policy, float *of_value, float *work) {
  int64_t n = policy->outputs[0];
  const int both[HEADS] = {1, 1};
  float *inputs = aligned(work), *layers = inputs + policy->inputs * PLACES;
  Space s = space(policy, layers + units(policy) * PLACES), t = s;
  work += work_size(policy);
  float *room = s.next + widest(policy) * PLACES, *others = aligned(work), *v = s.out[1];
  memset(of_policy, 0, sizeof(float) * gradient_size(policy));
  of_policy = aligned(of_policy);
  if (value) {
    memset(of_value, 0, sizeof(float) * gradient_size(value));
    of_value = aligned(of_value);
    t = space(value, others + units(value) * PLACES);
    v = t.out[0];
    work += work_size(value);
  }
  Kinds of = kinds(steps->x, rows, policy->inputs, work);
  memset(terms, 0, sizeof(double) * TERMS);
  for (int64_t first = 0; first < of.count; first += PLACES) {
    int64_t m = of.count - first < PLACES ? of.count - first : PLACES;
    Steps block = from(*steps, of.kind ? 0 : first, policy->inputs, n);
    take_in(policy, block.x, of.kind ? of.first + first : 0, m, inputs);
    const float *last = hidden(policy, inputs, m, layers);
    head(policy, 0, last, m, s.out[0]);
    if (value)
      head(value, 0, hidden(value, inputs, m, others), m, v);
    else
      head(policy, 1, last, m, v);
    if (of.kind)
      surrogate_of_kinds(s.out[0], n, v, &of, first, m, &block, how, terms, room);
    else
      surrogate(s.out[0], n, v, m, &block, how, terms, room);
    backward_block(policy, inputs, layers, m, s, both, 0, of_policy);
    if (value) backward_block(value, inputs, others, m, t, both, 0, of_value);
  }
}
