// Equal rows of a call: a network is computed once for each kind of them.

// Rows grouped into kinds of equal ones: in small games the same observations come again and again, and the network's
// outputs for them are computed once.
typedef struct {
  int64_t count;              // of kinds; of rows if each row is a kind of its own: then the pointers are null
  const int32_t *first;       // [count]: a row of each kind
  const int32_t *begin, *row; // [count + 1], [rows]: the rows of a kind k are those from row[begin[k]] on
  const int32_t *kind;        // [rows]
} Kinds;

#define TRIED 256 // rows after which the search for equal ones ends if over three quarters differ

// Return how many numbers the `room` of `kinds` must hold.
int64_t kinds_size(int64_t rows) { return 8 * rows + 2 * TRIED; }

static Kinds each(int64_t rows) { return (Kinds){rows, 0, 0, 0, 0}; }

// Return whether two rows differ in any byte.
INLINE int differs(const float *x, const float *y, int64_t n) {
  int32_t bits = 0;
  for (int64_t i = 0; i < n; i++) {
    int32_t of[2];
    memcpy(of, x + i, sizeof(float)), memcpy(of + 1, y + i, sizeof(float));
    bits |= of[0] ^ of[1];
  }
  return bits != 0;
}

static Kinds kinds(const float *x, int64_t rows, int64_t inputs, float *room) {
  const Kinds none = each(rows);
  if (rows < 2 * PLACES) return none;
  int64_t size = TRIED, count = 0, bytes = inputs * sizeof(float);
  while (size < 2 * rows) size *= 2;
  int32_t *table = (int32_t *)room, *first = table + size, *begin = first + rows, *row = begin + rows + 1;
  int32_t *kind = row + rows;
  memset(table, -1, size * sizeof(int32_t));
  for (int64_t r = 0; r < rows; r++) {
    const char *at = (const char *)(x + r * inputs);
    uint64_t hash = 0, word, some[4] = {0}; // four hashes that do not wait for each other
    for (int64_t i = 0, k = 0; i < bytes; i += sizeof(word), k = (k + 1) & 3) {
      word = 0;
      memcpy(&word, at + i, bytes - i < (int64_t)sizeof(word) ? bytes - i : (int64_t)sizeof(word));
      some[k] = (some[k] ^ word) * 0x9E3779B97F4A7C15u;
      some[k] ^= some[k] >> 29;
    }
    for (int k = 0; k < 4; k++) hash = (hash ^ some[k]) * 0x9E3779B97F4A7C15u, hash ^= hash >> 29;
    hash *= 0x9E3779B97F4A7C15u; // otherwise differences in the last inputs would not reach the low bits
    hash ^= hash >> 32;
    int64_t place = hash & (size - 1);
    while (table[place] >= 0 && differs(x + first[table[place]] * inputs, x + r * inputs, inputs))
      place = (place + 1) & (size - 1);
    if (table[place] < 0) table[place] = count, first[count++] = r;
    kind[r] = table[place];
    if ((r + 1 == TRIED || r + 1 == rows) && 4 * count > 3 * (r + 1)) return none;
  }
  memset(begin, 0, (count + 1) * sizeof(int32_t));
  for (int64_t r = 0; r < rows; r++) begin[kind[r] + 1]++;
  for (int64_t k = 0; k < count; k++) begin[k + 1] += begin[k];
  for (int64_t r = 0; r < rows; r++) row[begin[kind[r]]++] = r; // begin[k] ends up where kind k + 1 begins
  memmove(begin + 1, begin, count * sizeof(int32_t)), begin[0] = 0;
  return (Kinds){count, first, begin, row, kind};
}

// Write a row of each kind to `first` [kinds] and the kind of each row to `kind` [rows]; return the number of kinds,
// or 0 where few rows are equal.
int64_t find_kinds(const float *x, int64_t rows, int64_t inputs, int64_t *first, int32_t *kind, float *room) {
  Kinds of = kinds(x, rows, inputs, room);
  if (!of.kind) return 0;
  for (int64_t k = 0; k < of.count; k++) first[k] = of.first[k];
  for (int64_t r = 0; r < rows; r++) kind[r] = of.kind[r];
  return of.count;
}

// Copy y [units][PLACES] of a block of kinds, which begins with the kind `first`, to the rows `which`.
static void spread(const float *y, int64_t units, const Kinds *of, int64_t first, const int32_t *which, int64_t rows,
                   float *to) {
  for (int64_t u = 0; u < units; u++)
    for (int64_t r = 0; r < padded(rows); r++)
      to[u * PLACES + r] = y[u * PLACES + of->kind[which[r < rows ? r : rows - 1]] - first];
}

// Gather the rows `which` of columns [rows][width], numbers of `size` bytes. Inlined: else each number would be a call
// of memcpy.
INLINE void *gathered(const void *from, int64_t width, int64_t size, const int32_t *which, int64_t rows, void *to) {
  for (int64_t r = 0; r < rows; r++)
    for (int64_t i = 0; i < width; i++)
      memcpy((char *)to + (r * width + i) * size, (const char *)from + (which[r] * width + i) * size, size);
  return to;
}
