// Steps over Box actions: mean, draw, log-probability and value of a gaussian, which may be squashed by tanh.

enum { GAUSSIAN, SQUASHED, OF_STATE }; // OF_STATE: squashed, with a deviation that the network gives

#define HALF_LOG_TWO_PI 0.918938533204672742f
#define LOG_TWO 0.693147180559945309f
#define LEAST_LOG_STD -20.0f // of a deviation that the network gives
#define MOST_LOG_STD 2.0f

// log(1 - tanh(u)^2), finite also where tanh(u) rounds to 1.
static float log_slope(float u) {
  float x = -2 * u, softplus = x > 20 ? x : log1pf(expf(x));
  return 2 * (LOG_TWO - u - softplus);
}

// Write actions [rows][actions] as drawn, before they are squashed, by normally distributed `noise` of that shape
// (null: 0, the likeliest actions); their log-probabilities [rows], and the values as in `act`. `log_std` [actions];
// with OF_STATE it is added to the network's.
void act_gaussian(const Net *net, const Net *other, const float *x, int64_t rows, const Memory *memories, int64_t kind,
                  const float *log_std, const float *noise, float *action, float *log_prob, float *value,
                  float *work) {
  int64_t n = kind == OF_STATE ? net->outputs[0] / 2 : net->outputs[0];
  int64_t values = other ? other->outputs[0] : net->outputs[1];
  Pair two = pair(net, other, work);
  for (int64_t first = 0; first < rows; first += PLACES) {
    int64_t m = rows - first < PLACES ? rows - first : PLACES;
    forward_pair(&two, value != 0, x + first * net->inputs, 0, m, 0, memories, first);
    if (value) by_row(two.v, values, m, value + first * values);
    for (int64_t r = 0; r < m; r++) log_prob[first + r] = 0;
    for (int64_t a = 0; a < n; a++) {
      float std = expf(log_std[a]), l = log_std[a];
      for (int64_t r = 0; r < m; r++) {
        int64_t i = (first + r) * n + a;
        if (kind == OF_STATE) {
          l = two.z[(n + a) * PLACES + r] + log_std[a];
          l = l < LEAST_LOG_STD ? LEAST_LOG_STD : l > MOST_LOG_STD ? MOST_LOG_STD : l;
          std = expf(l);
        }
        float e = noise ? noise[i] : 0.0f, u = two.z[a * PLACES + r] + std * e;
        action[i] = u;
        log_prob[first + r] += -0.5f * e * e - l - HALF_LOG_TWO_PI - (kind == GAUSSIAN ? 0.0f : log_slope(u));
      }
    }
  }
}
