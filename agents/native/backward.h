// Gradients: the derivatives at a network's outputs, taken back through its layers.

// Add a block's share to a layer's gradient, [units][padded(before)] of weights and then [units] of biases, by the
// derivatives d [units][PLACES] at the layer.
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

// Return how many numbers `gradient` must have room for.
int64_t gradient_size(const Net *net) {
  int64_t size = 0, before = net->inputs;
  for (int64_t l = 0; l < net->layers; l++) size += layer_size(net->units[l], before), before = net->units[l];
  for (int64_t h = 0; h < net->heads; h++) size += layer_size(net->outputs[h], before);
  return size + 16;
}

// Working memory of `backward_block`: [outputs][PLACES] of each head, and the rest.
typedef struct {
  float *out[HEADS], *turned, *d, *next;
} Space;

static Space space(const Net *net, float *at) {
  Space s;
  for (int64_t h = 0; h < HEADS; h++) s.out[h] = at, at += (h < net->heads ? net->outputs[h] : 0) * PLACES;
  s.turned = at, at += padded(widest(net)) * PLACES;
  s.d = at, s.next = at + widest(net) * PLACES;
  return s;
}

// Add a block's part of the gradient, by the inputs and the hidden layers of the block. The derivatives of the heads
// that `given` names are in s.out, those of a network without heads in s.d; they are 0 after the last row. Return the
// derivatives at the inputs, if `at_inputs`.
static const float *backward_block(const Net *net, const float *inputs, const float *layers, int64_t m, Space s,
                                   const int *given, int at_inputs, float *gradient) {
  int64_t l = net->layers, places = padded(m), width = of_last(net);
  const float *last = last_of(net, inputs, layers);
  float *to = gradient;
  for (int64_t i = 0, before = net->inputs; i < l; i++) to += layer_size(net->units[i], before), before = net->units[i];
  transposed(last, PLACES, width, m, s.turned);
  float *of_head = to;
  for (int64_t h = 0, added = 0; h < net->heads; h++) {
    if (given[h]) {
      weigh(s.out[h], net->outputs[h], width, m, s.turned, of_head);
      product(width, places, net->outputs[h], net->head_weight[h], 1, width, s.out[h], PLACES, s.d, PLACES, 0,
              added, NONE);
      added = 1;
    }
    of_head += layer_size(net->outputs[h], width);
  }
  for (; l > 0; l--) {
    int64_t here = net->units[l - 1], before = l > 1 ? net->units[l - 2] : net->inputs;
    to -= layer_size(here, before);
    for (int64_t u = 0; u < here; u++) slope(last + u * PLACES, s.d + u * PLACES, places, net->activation);
    last = l > 1 ? last - before * PLACES : inputs;
    transposed(last, PLACES, before, m, s.turned);
    weigh(s.d, here, before, m, s.turned, to);
    if (l == 1 && !at_inputs) break;
    product(before, places, here, net->weight[l - 1], 1, before, s.d, PLACES, s.next, PLACES, 0, 0, NONE);
    float *done = s.d;
    s.d = s.next, s.next = done;
  }
  return s.d;
}

// Compute the gradient from the derivatives dy[h] [rows][outputs] at the outputs (null: 0) and what `forward` kept, and
// the derivatives dx [rows][inputs] at the inputs, unless dx is null. `collect` reads the gradient.
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

// Write to `to` the sum of `parts` gradients of `backward`, which lie `apart` numbers apart, as torch lays out
// parameters: weight and bias of each layer, then of each head.
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
