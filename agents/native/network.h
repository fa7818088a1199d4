// A network: hidden layers and linear heads on the last of them, computed in blocks of rows that stay in the
// processor's cache.
//
// Within a block numbers lie by unit and then by row, [units][PLACES], so that every loop goes over rows: weights are
// read in torch's layout, and layers of any width need no padding.

#define LAYERS 16 // at most: hidden layers
#define HEADS 2   // at most
#define CELL 9    // numbers that a recurrent cell works with, for each of its units and rows

typedef struct {
  int64_t inputs, layers, heads, activation;
  int64_t units[LAYERS];
  const float *weight[LAYERS], *bias[LAYERS]; // [units][units before]
  int64_t outputs[HEADS];                     // of each head, linear layers side by side after the last hidden one
  const float *head_weight[HEADS], *head_bias[HEADS];
  int64_t core, state;                        // a recurrent cell between hidden layers and heads, and its size
  const float *core_weight[2], *core_bias[2]; // of its gates: [gates * state][units before], [gates * state][state]
} Net;

enum { NO_CORE, LSTM, GRU };

static int64_t units(const Net *net) {
  int64_t n = 0;
  for (int64_t l = 0; l < net->layers; l++) n += net->units[l];
  return n;
}

// Copy x [rows][inputs], or its rows `which`, to [inputs][PLACES]; places after the last row repeat it.
static void take_in(const Net *net, const float *x, const int32_t *which, int64_t rows, float *to) {
  int64_t places = padded(rows), n = net->inputs;
  for (int64_t i = 0; i < n; i++) {
    float *into = to + i * PLACES;
    for (int64_t r = 0; r < rows; r++) into[r] = x[(which ? which[r] : r) * n + i];
    for (int64_t r = rows; r < places; r++) into[r] = into[rows - 1];
  }
}

// Compute the hidden layers of one block, each [units][PLACES], the first at `layers`; return the last, or the inputs.
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

// Return the last hidden layer of a block, already computed, or the inputs.
static const float *last_of(const Net *net, const float *inputs, const float *layers) {
  return net->layers ? layers + (units(net) - net->units[net->layers - 1]) * PLACES : inputs;
}

// Return the number of units of the last hidden layer, or of the inputs.
static int64_t of_last(const Net *net) { return net->layers ? net->units[net->layers - 1] : net->inputs; }

static void head(const Net *net, int64_t h, const float *last, int64_t rows, float *y) {
  int64_t before = net->core ? net->state : of_last(net);
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

// Return how many numbers `kept` must have room for.
int64_t kept_size(const Net *net, int64_t rows) { return ((rows + PLACES - 1) / PLACES * units(net) + 1) * PLACES; }

// Compute y[h] [rows][outputs] from x [rows][inputs]; without a head y[0] is the last hidden layer itself. Store what
// `backward` needs in `kept`, unless it is null.
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

static int64_t widest(const Net *net) {
  int64_t wide = net->inputs;
  for (int64_t l = 0; l < net->layers; l++) wide = net->units[l] > wide ? net->units[l] : wide;
  return wide;
}

static int64_t layer_size(int64_t n, int64_t before) { return n * padded(before) + padded(n); }

// Return how many numbers `work` must have room for, in functions of this network.
int64_t work_size(const Net *net) {
  int64_t outputs = 0;
  for (int64_t h = 0; h < net->heads; h++) outputs += net->outputs[h];
  int64_t cell = net->core ? CELL * net->state : 0;
  return (net->inputs + units(net) + cell + 13 * outputs + 3 * widest(net) + LANES + 8) * PLACES;
}
