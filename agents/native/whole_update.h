// Whole updates of PPO: minibatch after minibatch, each with its gradient, its norm and a step of Adam.

// Adam on a flat vector, as torch's fused kernel computes it.
typedef struct {
  double rate, beta1, beta2, epsilon, decay; // decay: of weights
  int64_t decoupled, step;                   // AdamW; steps made so far
  double longest;                            // longer gradients are scaled down to this norm
  int64_t parameters;
  float *values, *gradient, *mean, *square;
  const float *factors; // of each parameter's rate; null: 1 each
} Descent;

// Return the norm of the gradient; eight sums let the compiler use vectors.
static double norm(const float *x, int64_t n) {
  double sums[8] = {0}, sum = 0;
  int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    for (int k = 0; k < 8; k++) sums[k] += (double)x[i + k] * x[i + k];
  for (; i < n; i++) sum += (double)x[i] * x[i];
  for (int k = 0; k < 8; k++) sum += sums[k];
  return sqrt(sum);
}

static void descend(Descent *d, double length) {
  double cut = d->longest / (length + 1e-6), one = 1 - pow(d->beta1, ++d->step), two = 1 - pow(d->beta2, d->step);
  float scale = cut < 1 ? cut : 1, beta1 = d->beta1, beta2 = d->beta2, rest1 = 1 - d->beta1, rest2 = 1 - d->beta2;
  float size = d->rate / one, root = sqrt(two), epsilon = d->epsilon, decay = d->decay, kept = 1 - d->rate * d->decay;
  float *restrict w = d->values, *restrict m = d->mean, *restrict v = d->square;
  const float *restrict gradient = d->gradient, *restrict factors = d->factors;
  int in_gradient = decay != 0 && !d->decoupled, apart = decay != 0 && d->decoupled;
  for (int64_t i = 0; i < d->parameters; i++) {
    float before = w[i], g = gradient[i] * scale, to = before;
    if (in_gradient) g += decay * before;
    if (apart) to *= kept;
    m[i] = beta1 * m[i] + rest1 * g;
    v[i] = beta2 * v[i] + rest2 * g * g;
    to -= size * m[i] / (sqrtf(v[i]) / root + epsilon);
    w[i] = factors ? before + factors[i] * (to - before) : to;
  }
}

// A whole update of one player: `epochs` passes over its steps in minibatches.
typedef struct {
  const Net *policy, *value; // value: null where it is the second head of `policy`
  Steps steps;
  int64_t rows, epochs, minibatches;
  const int32_t *order; // [epochs][rows]
  const int64_t *cuts;  // [minibatches + 1]: where the rows of each begin
  const int32_t *kind;  // [rows]: from `find_kinds`; null: most rows are of a kind of their own
  int64_t standardize;  // advantages, in each minibatch
  double most_kl;       // a minibatch beyond it ends the update; below 0: none does
  Loss loss;
  Descent descent;
  float *of_policy, *of_value; // their parts of the gradient
  double *terms;               // [epochs * minibatches][TERMS + 1]: means, then the gradient's norm
  int64_t done, failed;        // minibatches; `failed`: the next was not finite, and changed nothing
  int64_t ended;               // the number of the minibatch beyond `most_kl`; -1: none was
} Whole;

// Group the rows `which` by kinds, given the kinds of all rows; rows keep their numbers. `known` [kinds] holds -1.
static Kinds kinds_among(const int32_t *all, const int32_t *which, int64_t rows, int32_t *known, int32_t *room) {
  int32_t *first = room, *begin = first + rows, *row = begin + rows + 1, *kind = row + rows, count = 0;
  for (int64_t r = 0; r < rows; r++) {
    int32_t *k = known + all[which[r]];
    if (*k < 0) *k = count, first[count++] = which[r];
    kind[which[r]] = *k;
  }
  for (int64_t k = 0; k < count; k++) known[all[first[k]]] = -1;
  if (4 * count > 3 * rows) return each(rows);
  memset(begin, 0, (count + 1) * sizeof(int32_t));
  for (int64_t r = 0; r < rows; r++) begin[kind[which[r]] + 1]++;
  for (int64_t k = 0; k < count; k++) begin[k + 1] += begin[k];
  for (int64_t r = 0; r < rows; r++) row[begin[kind[which[r]]]++] = which[r];
  memmove(begin + 1, begin, count * sizeof(int32_t)), begin[0] = 0;
  return (Kinds){count, first, begin, row, kind};
}

// Return how many numbers `work` of `learn_whole` must have room for.
int64_t whole_size(const Whole *of) {
  const Net *nets[] = {of->policy, of->value};
  int64_t size = 6 * of->rows + 64;
  for (int i = 0; i < 2; i++)
    if (nets[i]) size += work_size(nets[i]) + gradient_size(nets[i]) + sparse_size(nets[i]) + 32;
  return size;
}

static void standardized(const float *x, const int32_t *which, int64_t rows, float *to) {
  double mean = 0, squares = 0;
  for (int64_t r = 0; r < rows; r++) mean += x[which[r]];
  mean /= rows;
  for (int64_t r = 0; r < rows; r++) squares += (x[which[r]] - mean) * (x[which[r]] - mean);
  double deviation = rows > 1 ? sqrt(squares / (rows - 1)) + 1e-8 : 1;
  for (int64_t r = 0; r < rows; r++) to[which[r]] = rows > 1 ? (x[which[r]] - mean) / deviation : x[which[r]];
}

static double loss_of(const Loss *of, const double *terms) {
  double loss = terms[POLICY_LOSS] + of->value_coefficient * terms[VALUE_LOSS];
  loss -= of->entropy_coefficient * terms[ENTROPY];
  for (int k = 0; k < ANCHORS; k++) loss += of->anchored[k] * terms[OF_ANCHORS + k];
  return loss;
}

// Learn from one minibatch after another, up to the end or to one that is not finite, which changes nothing.
void learn_whole(Whole *of, float *work) {
  int64_t n = of->rows;
  float *space = work, *parts[2] = {0, 0};
  const Net *nets[] = {of->policy, of->value};
  for (int i = 0; i < 2; i++) space += nets[i] ? work_size(nets[i]) : 0;
  Sparse rarely[2] = {{0}, {0}};
  for (int i = 0; i < 2; i++)
    if (nets[i]) {
      parts[i] = space, space += gradient_size(nets[i]) + 16;
      rarely[i] = sparse(nets[i], space), space += sparse_size(nets[i]);
    }
  float *advantage = space;
  int32_t *known = (int32_t *)(space + n), *own = known + n;
  if (of->kind) memset(known, -1, n * sizeof(int32_t));
  Steps steps = of->steps;
  if (of->standardize) steps.column[ADVANTAGE] = advantage;
  of->done = of->failed = 0, of->ended = -1;
  for (int64_t e = 0; e < of->epochs; e++)
    for (int64_t b = 0; b < of->minibatches; b++) {
      const int32_t *which = of->order + e * n + of->cuts[b];
      int64_t rows = of->cuts[b + 1] - of->cuts[b];
      double *terms = of->terms + of->done * (TERMS + 1);
      Kinds here = of->kind ? kinds_among(of->kind, which, rows, known, own) : each(rows);
      if (of->standardize) standardized(of->steps.column[ADVANTAGE], which, rows, advantage);
      of->loss.rows = rows;
      rarely[0].ready = rarely[1].ready = 0;
      gradient_of(of->policy, of->value, &steps, &here, which, &of->loss, 0, terms, parts[0], parts[1], rarely, work);
      for (int t = 0; t < TERMS; t++) terms[t] /= rows;
      collect(of->policy, parts[0], 1, 0, of->of_policy);
      if (of->value) collect(of->value, parts[1], 1, 0, of->of_value);
      terms[TERMS] = norm(of->descent.gradient, of->descent.parameters);
      if (!isfinite(loss_of(&of->loss, terms))) { of->failed = 1; return; }
      if (of->most_kl >= 0 && terms[KL] > of->most_kl) {
        of->ended = e * of->minibatches + b;
        if (!of->done) terms[TERMS] = 0, of->done = 1; // too far already: nothing is learned from it
        return;
      }
      if (!isfinite(terms[TERMS])) { of->failed = 1; return; }
      descend(&of->descent, terms[TERMS]);
      of->done++;
    }
}
