// The gradients of policy-gradient losses over Discrete actions: each block of rows goes forward, through the loss, and
// backward.

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
// `work`: 11 [actions][PLACES]. A kind's rows are added up in double: what they share of an error does not cancel out.
static void surrogate_of_kinds(float *z, int64_t n, float *v, const Kinds *of, int64_t first, int64_t m,
                               const Steps *steps, const Surrogate *how, double *terms, float *work) {
  double *d = (double *)work, dv[PLACES] = {0};
  float *of_row = work + 2 * n * PLACES, *room = of_row + n * PLACES, columns[4][PLACES];
  float *anchors = room + 5 * n * PLACES, value[PLACES];
  uint8_t *mask = (uint8_t *)(room + 4 * n * PLACES);
  int64_t action[PLACES];
  memset(d, 0, sizeof(double) * n * PLACES);
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
  for (int64_t i = 0; i < n * PLACES; i++) z[i] = d[i];
  for (int64_t k = 0; k < PLACES; k++) v[k] = dv[k];
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
