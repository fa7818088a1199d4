// The network of a policy and that of its value, at one block of rows.
//
// In functions that take both, `value` is null where it is the second head of `policy`, and `work` has room for one
// network, then the other, then `kinds`.

typedef struct {
  const Net *policy, *value;
  float *inputs, *layers, *others; // [units][PLACES]: the inputs, and the hidden layers of each network
  float *cells[2];                 // working memory of recurrent cells
  Space of_policy, of_value;       // both the same where `value` is null
  float *z, *v;                    // outputs of the policy and values, [outputs][PLACES]
  float *room, *of_kinds;          // after the policy's space, and after all of this
} Pair;

static Pair pair(const Net *policy, const Net *value, float *work) {
  float *inputs = aligned(work), *layers = inputs + policy->inputs * PLACES, *others = 0;
  float *cell = layers + units(policy) * PLACES, *other_cell = 0;
  Space s = space(policy, cell + (policy->core ? CELL * policy->state * PLACES : 0)), t = s;
  work += work_size(policy);
  if (value) {
    others = aligned(work);
    other_cell = others + units(value) * PLACES;
    t = space(value, other_cell + (value->core ? CELL * value->state * PLACES : 0));
    work += work_size(value);
  }
  float *room = s.next + widest(policy) * PLACES, *v = value ? t.out[0] : s.out[1];
  return (Pair){policy, value, inputs, layers, others, {cell, other_cell}, s, t, s.out[0], v, room, work};
}

// Let the hidden layers of a block, which begins with the row `first`, stay in `kept` instead of working memory.
static void keep(Pair *two, float *const *kept, int64_t first) {
  two->layers = aligned(kept[0]) + first * units(two->policy);
  if (two->value) two->others = aligned(kept[1]) + first * units(two->value);
}

// Compute the outputs, and the values if `valued`, of a block: of m rows x, or of the rows `which`. If `known`, the
// hidden layers are already computed. `memories`: of each network with a cell; the block begins with their row `first`.
static void forward_pair(const Pair *two, int valued, const float *x, const int32_t *which, int64_t m, int known,
                         const Memory *memories, int64_t first) {
  const Net *policy = two->policy, *value = two->value;
  take_in(policy, x, which, m, two->inputs);
  const float *last = known ? last_of(policy, two->inputs, two->layers) : hidden(policy, two->inputs, m, two->layers);
  if (policy->core) last = remember(policy, last, m, memories, first, two->cells[0]);
  head(policy, 0, last, m, two->z);
  if (!valued) return;
  if (value) {
    last = known ? last_of(value, two->inputs, two->others) : hidden(value, two->inputs, m, two->others);
    if (value->core) last = remember(value, last, m, memories + 1, first, two->cells[1]);
  }
  head(value ? value : policy, value ? 0 : 1, last, m, two->v);
}
