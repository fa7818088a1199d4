// Learning: each block of rows goes forward through the policy's network and the value's, through the loss, and
// backward.
//
// `value` and `work` are as in pair.h.

// Room for rows that do not follow each other.
typedef struct {
  float columns[COLUMNS][PLACES];
  int64_t action[PLACES];
} Picked;

// Gather columns of the rows `which`: into `picked`, and those as wide as the actions into `wide`, 4 [actions][PLACES].
static Steps picked_steps(const Steps *steps, const int32_t *which, int64_t rows, int64_t n, Picked *picked,
                          float *wide) {
  Steps s = {0};
  if (steps->mask) s.mask = gathered(steps->mask, n, 1, which, rows, wide);
  s.action = gathered(steps->action, 1, sizeof(int64_t), which, rows, picked->action);
  for (int c = 0; c < COLUMNS; c++)
    if (steps->column[c]) s.column[c] = gathered(steps->column[c], 1, sizeof(float), which, rows, picked->columns[c]);
  for (int k = 0; k < ANCHORS; k++)
    if (steps->anchors[k])
      s.anchors[k] = gathered(steps->anchors[k], n, sizeof(float), which, rows, wide + (k + 1) * n * PLACES);
  return s;
}

// `differentiate` the rows of m kinds, which begin with the kind `first`: z and v are the kinds' outputs, and become
// their derivatives. `work`: 11 [actions][PLACES]. A kind's rows are added up in double, since shared errors do not
// cancel out.
static void differentiate_kinds(float *z, int64_t n, float *v, const Kinds *of, int64_t first, int64_t m,
                                const Steps *steps, const Loss *loss, double *terms, float *work) {
  double *d = (double *)work, dv[PLACES] = {0};
  float *of_row = work + 2 * n * PLACES, *room = of_row + n * PLACES, value[PLACES];
  Picked picked;
  memset(d, 0, sizeof(double) * n * PLACES);
  for (int64_t i = of->begin[first], end = of->begin[first + m]; i < end; i += PLACES) {
    const int32_t *which = of->row + i;
    int64_t rows = end - i < PLACES ? end - i : PLACES;
    Steps s = picked_steps(steps, which, rows, n, &picked, room + 4 * n * PLACES);
    spread(z, n, of, first, which, rows, of_row);
    spread(v, 1, of, first, which, rows, value);
    differentiate(of_row, n, value, rows, &s, loss, terms, room);
    for (int64_t r = 0; r < rows; r++) {
      int64_t k = of->kind[which[r]] - first;
      for (int64_t a = 0; a < n; a++) d[a * PLACES + k] += of_row[a * PLACES + r];
      dv[k] += value[r];
    }
  }
  for (int64_t i = 0; i < n * PLACES; i++) z[i] = d[i];
  for (int64_t k = 0; k < PLACES; k++) v[k] = dv[k];
}

// Compute the gradient of a loss over some rows of a minibatch, by their kinds, and the sums of its terms over them.
// `which`: the rows, where they have no kinds and do not follow each other from the first on. `kept`: as in `learn`.
// `rarely`: for each network, the state for computing its rectified layers row by row; null: by blocks.
static void gradient_of(const Net *policy, const Net *value, const Steps *steps, const Kinds *of, const int32_t *which,
                        const Loss *loss, float *const *kept, double *terms, float *of_policy, float *of_value,
                        Sparse *rarely, float *work) {
  int64_t n = policy->outputs[0];
  const int both[HEADS] = {1, 1};
  Pair two = pair(policy, value, work);
  Picked picked;
  memset(of_policy, 0, sizeof(float) * gradient_size(policy));
  if (value) memset(of_value, 0, sizeof(float) * gradient_size(value));
  memset(terms, 0, sizeof(double) * TERMS);
  for (int64_t first = 0; first < of->count; first += PLACES) {
    int64_t m = of->count - first < PLACES ? of->count - first : PLACES;
    const int32_t *some = of->kind ? of->first + first : which ? which + first : 0;
    Steps block = from(*steps, some ? 0 : first, policy->inputs, n);
    int by_rows[2] = {0};
    if (kept) keep(&two, kept, first);
    if (rarely)
      forward_sparse(&two, block.x, some, m, rarely, by_rows);
    else
      forward_pair(&two, 1, block.x, some, m, kept != 0, 0, 0);
    if (of->kind) {
      differentiate_kinds(two.z, n, two.v, of, first, m, &block, loss, terms, two.room);
    } else {
      if (some) block = picked_steps(steps, some, m, n, &picked, two.room + 4 * n * PLACES);
      differentiate(two.z, n, two.v, m, &block, loss, terms, two.room);
    }
    if (by_rows[0])
      backward_rows(policy, m, rarely, two.of_policy.out, aligned(of_policy));
    else
      backward_block(policy, two.inputs, two.layers, m, two.of_policy, both, 0, aligned(of_policy));
    if (value && by_rows[1])
      backward_rows(value, m, rarely + 1, two.of_value.out, aligned(of_value));
    else if (value)
      backward_block(value, two.inputs, two.others, m, two.of_value, both, 0, aligned(of_value));
  }
}

// Compute the gradient of a loss over some rows of a minibatch, and the sums of its terms over them. `kept`: the hidden
// layers of each network, from `evaluate` of the same rows; null: compute them.
void learn(const Net *policy, const Net *value, const Steps *steps, int64_t rows, const Loss *loss, float *const *kept,
           double *terms, float *of_policy, float *of_value, float *work) {
  Kinds of = kept ? each(rows) : kinds(steps->x, rows, policy->inputs, pair(policy, value, work).of_kinds);
  gradient_of(policy, value, steps, &of, 0, loss, kept, terms, of_policy, of_value, 0, work);
}

// Write log-probabilities [rows] of the steps' actions and values [rows]. Return 1 if the hidden layers of all rows are
// in `kept`, which may be null; of equal rows none are kept, since computing a few kinds again costs little.
int64_t evaluate(const Net *policy, const Net *value, const Steps *steps, int64_t rows, float *const *kept,
                 float *log_prob, float *values, float *work) {
  int64_t n = policy->outputs[0];
  Pair two = pair(policy, value, work);
  float *of_row = two.room, *p = of_row + n * PLACES;
  uint8_t *masks = (uint8_t *)(p + n * PLACES);
  Kinds of = kinds(steps->x, rows, policy->inputs, two.of_kinds);
  for (int64_t first = 0; first < of.count; first += PLACES) {
    int64_t m = of.count - first < PLACES ? of.count - first : PLACES;
    Steps block = from(*steps, of.kind ? 0 : first, policy->inputs, n);
    if (kept && !of.kind) keep(&two, kept, first);
    forward_pair(&two, 1, block.x, of.kind ? of.first + first : 0, m, 0, 0, 0);
    if (!of.kind) {
      if (block.mask) forbid(two.z, n, m, block.mask);
      log_softmax(two.z, n, m, p);
      for (int64_t r = 0; r < m; r++) log_prob[first + r] = two.z[block.action[r] * PLACES + r];
      memcpy(values + first, two.v, sizeof(float) * m);
      continue;
    }
    for (int64_t i = of.begin[first], end = of.begin[first + m]; i < end; i += PLACES) {
      const int32_t *which = of.row + i;
      int64_t here = end - i < PLACES ? end - i : PLACES;
      spread(two.z, n, &of, first, which, here, of_row);
      if (block.mask) forbid(of_row, n, here, gathered(block.mask, n, 1, which, here, masks));
      log_softmax(of_row, n, here, p);
      for (int64_t r = 0; r < here; r++) {
        log_prob[which[r]] = of_row[block.action[which[r]] * PLACES + r];
        values[which[r]] = two.v[of.kind[which[r]] - first];
      }
    }
  }
  return kept && !of.kind;
}
