// Steps over Discrete actions: logits, draw, log-probability and value.

enum { LIKELIEST, UNIFORM, EXPONENTIAL };
#define ILLEGAL -1e8f

static void forbid(float *z, int64_t n, int64_t rows, const uint8_t *mask) {
  for (int64_t a = 0; a < n; a++)
    for (int64_t r = 0; r < rows; r++)
      if (!mask[r * n + a]) z[a * PLACES + r] = ILLEGAL;
}

// Draw one block's actions from logits z [actions][PLACES], which are masked in place. `chance` has a number for each
// row or, with EXPONENTIAL, for each row and action. In a row with NaN the action is legal, its log-probability NaN.
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
    if (by != UNIFORM) // from the last action down, so that the first of equal ones is taken
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

// Write actions int64 [rows], their log-probabilities [rows] and, unless `value` is null, the values [rows][values];
// `other` computes these, `net` if it is null. `mask` [rows][actions] may be null. `work` and `memories`: see pair.h.
void act(const Net *net, const Net *other, const float *x, int64_t rows, const Memory *memories, const uint8_t *mask,
         int64_t by, const float *chance, int64_t *action, float *log_prob, float *value, float *work) {
  int64_t n = net->outputs[0], values = other ? other->outputs[0] : net->outputs[1], one = by == EXPONENTIAL ? n : 1;
  Pair two = pair(net, other, work);
  float *of_row = two.room, *p = of_row + n * PLACES, *chances = p + n * PLACES;
  uint8_t *masks = (uint8_t *)(chances + n * PLACES);
  Kinds of = net->core ? each(rows) : kinds(x, rows, net->inputs, two.of_kinds);
  for (int64_t first = 0; first < of.count; first += PLACES) {
    int64_t m = of.count - first < PLACES ? of.count - first : PLACES;
    const float *block = of.kind ? x : x + first * net->inputs;
    forward_pair(&two, value != 0, block, of.kind ? of.first + first : 0, m, 0, memories, first);
    if (!of.kind) {
      draw(two.z, n, m, mask ? mask + first * n : 0, by, chance ? chance + first * one : 0, action + first,
           log_prob + first, p);
      if (value) by_row(two.v, values, m, value + first * values);
      continue;
    }
    for (int64_t i = of.begin[first], end = of.begin[first + m]; i < end; i += PLACES) {
      const int32_t *which = of.row + i;
      int64_t here = end - i < PLACES ? end - i : PLACES, actions[PLACES];
      float log_probs[PLACES];
      spread(two.z, n, &of, first, which, here, of_row);
      if (mask) gathered(mask, n, 1, which, here, masks);
      if (chance) gathered(chance, one, sizeof(float), which, here, chances);
      draw(of_row, n, here, mask ? masks : 0, by, chance ? chances : 0, actions, log_probs, p);
      for (int64_t r = 0; r < here; r++) {
        action[which[r]] = actions[r], log_prob[which[r]] = log_probs[r];
        for (int64_t u = 0; value && u < values; u++)
          value[which[r] * values + u] = two.v[u * PLACES + of.kind[which[r]] - first];
      }
    }
  }
}
