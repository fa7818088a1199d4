// Sums over the steps of unrolls, from the last step to the first.

// sums [steps][numbers]: each is its term plus its decay times the next step's sum, which after the last step is 0.
void sum_from_the_end(const float *term, const float *decay, int64_t steps, int64_t numbers, float *sums) {
  for (int64_t t = steps - 1; t >= 0; t--)
    for (int64_t n = 0; n < numbers; n++) {
      int64_t i = t * numbers + n;
      sums[i] = term[i] + (t + 1 < steps ? decay[i] * sums[i + numbers] : 0.0f);
    }
}
