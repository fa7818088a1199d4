// Policy-gradient losses over Discrete actions, and their derivatives at the outputs of a network.

enum { TEACHER, MAGNET, LAST, ANCHORS }; // policies that the loss keeps this one near

// Columns of a minibatch: `log_prob` of the policy that acted; `weight` multiplies the ratio of probabilities; the
// reported divergence is from `since`, or from `log_prob` where that is null; `upgoing` is a second advantage.
enum { LOG_PROB, ADVANTAGE, TARGET, OLD_VALUE, WEIGHT, SINCE, UPGOING, COLUMNS };

typedef struct {
  double rows; // of the minibatch
  double clip; // of the ratio; < 0: the loss is of log-probabilities, not of ratios
  double clip_value, value_coefficient, entropy_coefficient, upgo_coefficient; // clip_value < 0: none
  double anchored[ANCHORS];                                                    // coefficients of the divergences
} Loss;

// Steps by row. `mask` bool [rows][actions] and columns that are not needed may be null.
typedef struct {
  const float *x; // [rows][inputs]
  const uint8_t *mask;
  const int64_t *action;
  const float *column[COLUMNS];
  const float *anchors[ANCHORS]; // their logits [rows][actions]
} Steps;

static Steps from(Steps s, int64_t first, int64_t inputs, int64_t actions) {
  s.x += first * inputs, s.mask += s.mask ? first * actions : 0, s.action += first;
  for (int c = 0; c < COLUMNS; c++) s.column[c] += s.column[c] ? first : 0;
  for (int k = 0; k < ANCHORS; k++) s.anchors[k] += s.anchors[k] ? first * actions : 0;
  return s;
}

enum { POLICY_LOSS, VALUE_LOSS, ENTROPY, KL, CLIPPED, UPGO_LOSS, OF_ANCHORS, TERMS = OF_ANCHORS + ANCHORS };

// Turn logits z [actions][PLACES] into log-probabilities; write the probabilities to p.
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

// sums [PLACES] = sum over the actions of p (l - other), each [actions][PLACES]; if other is null, of p l.
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

// Add to d [actions][PLACES] the derivatives of a divergence between the policy, with log-probabilities l and
// probabilities p, and an anchor with these logits: KL(teacher || policy), else KL(policy || anchor). Return its sum.
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

// Add a step's terms, its action having log-probability `l`; return the policy's derivative there, times the rows.
static float of_ratio(float l, const Steps *s, int64_t r, float clip, double *terms) {
  const float *const *column = s->column;
  float change = l - column[LOG_PROB][r], ratio = expf(change), a = column[ADVANTAGE][r];
  if (column[SINCE]) change = l - column[SINCE][r];
  terms[KL] += (column[SINCE] ? expf(change) : ratio) - 1 - change;
  if (column[WEIGHT]) ratio *= column[WEIGHT][r];
  terms[CLIPPED] += fabsf(ratio - 1) > clip;
  float cut = ratio < 1 - clip ? 1 - clip : ratio > 1 + clip ? 1 + clip : ratio;
  int within = !(cut * a < ratio * a); // NaN stays NaN
  terms[POLICY_LOSS] -= within ? ratio * a : cut * a;
  return within ? -a * ratio : 0.0f;
}

static float of_log_prob(float l, const Steps *s, int64_t r, float upgo, double *terms) {
  float a = s->column[ADVANTAGE][r], upgoing = s->column[UPGOING] ? s->column[UPGOING][r] : 0.0f;
  terms[POLICY_LOSS] -= l * a, terms[UPGO_LOSS] -= l * upgoing;
  return -(a + upgo * upgoing);
}

// Do the same for the value; `limit` < 0: the value is not clipped.
static float of_value(float v, const Steps *s, int64_t r, float limit, double *terms) {
  float target = s->column[TARGET][r], error = v - target, slope = 1.0f;
  if (limit >= 0) {
    float old = s->column[OLD_VALUE][r], moved = v - old;
    float held = moved < -limit ? -limit : moved > limit ? limit : moved, other = old + held - target;
    if (other * other > error * error) error = other, slope = held == moved ? 1.0f : 0.0f;
  }
  terms[VALUE_LOSS] += error * error;
  return 2 * error * slope;
}

// Replace one block's logits z [actions][PLACES] and values v [PLACES] by the derivatives of a loss at them; add the
// loss's terms, times the rows, to `terms`. `work`: 4 [actions][PLACES].
static void differentiate(float *z, int64_t n, float *v, int64_t rows, const Steps *s, const Loss *of, double *terms,
                          float *work) {
  int64_t places = padded(rows);
  float share = 1.0 / of->rows, entropies[PLACES], chosen[PLACES] = {0};
  float bonus = of->entropy_coefficient * share, *p = work, *added = work + n * PLACES;
  int any = 0;
  if (s->mask) forbid(z, n, rows, s->mask);
  log_softmax(z, n, rows, p);
  expectation(p, z, 0, n, rows, entropies);
  for (int64_t r = 0; r < places; r++) entropies[r] = -entropies[r];
  for (int64_t r = 0; r < rows; r++) {
    float l = z[s->action[r] * PLACES + r];
    chosen[r] = share * (of->clip < 0 ? of_log_prob(l, s, r, of->upgo_coefficient, terms)
                                      : of_ratio(l, s, r, of->clip, terms));
    v[r] = of_value(v[r], s, r, of->clip_value, terms) * (float)of->value_coefficient * share;
    terms[ENTROPY] += entropies[r];
  }
  for (int64_t r = rows; r < places; r++) v[r] = 0;
  for (int k = 0; k < ANCHORS; k++) {
    if (!s->anchors[k]) continue;
    if (!any++) memset(added, 0, sizeof(float) * n * PLACES);
    float coefficient = of->anchored[k] * share;
    terms[OF_ANCHORS + k] += anchored(k, s->anchors[k], coefficient, z, p, n, rows, added, added + n * PLACES);
  }
  for (int64_t a = 0; a < n; a++)
    for (int64_t r = 0; r < places; r++) {
      float e = p[a * PLACES + r], l = z[a * PLACES + r];
      float d = bonus * e * (l + entropies[r]) - chosen[r] * e;
      if (any) d += added[a * PLACES + r];
      z[a * PLACES + r] = r < rows ? d : 0.0f;
    }
  for (int64_t r = 0; r < rows; r++)
    if (!s->mask || s->mask[r * n + s->action[r]]) z[s->action[r] * PLACES + r] += chosen[r];
}
