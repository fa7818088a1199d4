// Recurrent cells for acting: one step of torch's LSTM or GRU, with weights in torch's layout.

// The memory of all rows before and after the step, [rows][state] each; only the LSTM has c.
typedef struct {
  const float *h, *c;
  float *h_after, *c_after;
} Memory;

INLINE vec sigmoid(vec x) { return inverse(1.0f + exponential(-x)); }

static void lstm(float *gates, const float *bias, int64_t n, int64_t places, float *h, float *c) {
  for (int64_t u = 0; u < n; u++)
    for (int64_t r = 0; r < places; r += LANES) {
      vec in = load(gates + u * PLACES + r) + bias[u], forget = load(gates + (n + u) * PLACES + r) + bias[n + u];
      vec new = load(gates + (2 * n + u) * PLACES + r) + bias[2 * n + u];
      vec out = load(gates + (3 * n + u) * PLACES + r) + bias[3 * n + u];
      vec cell = sigmoid(forget) * load(c + u * PLACES + r) + sigmoid(in) * activated(new, TANH);
      store(c + u * PLACES + r, cell);
      store(h + u * PLACES + r, sigmoid(out) * activated(cell, TANH));
    }
}

static void gru(const float *of_x, const float *of_h, int64_t n, int64_t places, float *h) {
  for (int64_t u = 0; u < n; u++)
    for (int64_t r = 0; r < places; r += LANES) {
      int64_t reset = u * PLACES + r, update = reset + n * PLACES, new = update + n * PLACES;
      vec kept = sigmoid(load(of_x + update) + load(of_h + update)), before = load(h + reset);
      vec other = load(of_x + new) + sigmoid(load(of_x + reset) + load(of_h + reset)) * load(of_h + new);
      other = activated(other, TANH);
      store(h + reset, other + kept * (before - other));
    }
}

// Compute one step of a block of rows, which begins with the memory's row `first`, by x [units][PLACES]; return
// h [state][PLACES].
static const float *remember(const Net *net, const float *x, int64_t rows, const Memory *memory, int64_t first,
                             float *work) {
  int64_t n = net->state, gates = net->core == LSTM ? 4 * n : 3 * n, before = of_last(net), places = padded(rows);
  float *h = work, *c = h + n * PLACES, *of_x = c + n * PLACES, *of_h = of_x + gates * PLACES;
  by_unit(memory->h + first * n, n, rows, h);
  product(gates, places, before, net->core_weight[0], before, 1, x, PLACES, of_x, PLACES, net->core_bias[0], 0, NONE);
  if (net->core == LSTM) {
    by_unit(memory->c + first * n, n, rows, c);
    product(gates, places, n, net->core_weight[1], n, 1, h, PLACES, of_x, PLACES, 0, 1, NONE);
    lstm(of_x, net->core_bias[1], n, places, h, c);
    by_row(c, n, rows, memory->c_after + first * n);
  } else {
    product(gates, places, n, net->core_weight[1], n, 1, h, PLACES, of_h, PLACES, net->core_bias[1], 0, NONE);
    gru(of_x, of_h, n, places, h);
  }
  by_row(h, n, rows, memory->h_after + first * n);
  return h;
}
