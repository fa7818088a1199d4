// gymnasium's classic control, N copies at a time: its equations in its precision, and the reset of ended episodes.
// Every product is rounded as the library rounds it: with a pole kept up, another rounding gives another game.
#ifdef __clang__
#pragma clang fp contract(off)
#else
#pragma GCC optimize("fp-contract=off")
#endif
#include <math.h>
#include <stdint.h>
#include <string.h>

enum { CARTPOLE, ACROBOT, MOUNTAIN_CAR, MOUNTAIN_CAR_CONTINUOUS, PENDULUM };
#define PI 3.14159265358979323846

typedef struct {
  int64_t kind, copies, limit; // most steps of an episode; 0: no limit
  int64_t size, seen, ahead; // numbers of a state, of an observation; starts drawn ahead
  double option;               // CartPole's reward of Sutton and Barto, a car's goal velocity, a pendulum's gravity
  double *state;               // [copies][size]
  int64_t *steps; // [copies]: of the present episode
  const double *starts;        // [copies][ahead][size]
  int64_t *next; // [copies]: index of the next start
} Classic;

// Results of one step.
typedef struct {
  double reward;
  int terminated;
} Gained;

static Gained cartpole(double *s, int64_t action, double sutton_barto) {
  const double length = 0.5, pole = 0.1, total = 1.1, force = action == 1 ? 10.0 : -10.0, tau = 0.02;
  const double edge = 12 * 2 * PI / 360;
  double c = cos(s[2]), si = sin(s[2]);
  double temp = (force + pole * length * (s[3] * s[3]) * si) / total;
  double theta = (9.8 * si - c * temp) / (length * (4.0 / 3.0 - pole * (c * c) / total));
  double x = temp - pole * length * theta * c / total;
  s[0] += tau * s[1], s[1] += tau * x, s[2] += tau * s[3], s[3] += tau * theta;
  int fell = s[0] < -2.4 || s[0] > 2.4 || s[2] < -edge || s[2] > edge;
  return (Gained){sutton_barto ? (fell ? -1.0 : 0.0) : 1.0, fell};
}

static void acrobot_derivatives(const double *s, double torque, double *d) {
  const double g = 9.8, l1 = 1.0, m1 = 1.0, m2 = 1.0, lc1 = 0.5, lc2 = 0.5, i1 = 1.0, i2 = 1.0;
  double c2 = cos(s[1]), s2 = sin(s[1]);
  double d1 = m1 * lc1 * lc1 + m2 * (l1 * l1 + lc2 * lc2 + 2 * l1 * lc2 * c2) + i1 + i2;
  double d2 = m2 * (lc2 * lc2 + l1 * lc2 * c2) + i2;
  double phi2 = m2 * lc2 * g * cos(s[0] + s[1] - PI / 2.0);
  double phi1 = -m2 * l1 * lc2 * (s[3] * s[3]) * s2 - 2 * m2 * l1 * lc2 * s[3] * s[2] * s2 +
                (m1 * lc1 + m2 * l1) * g * cos(s[0] - PI / 2) + phi2;
  double pushed = torque + d2 / d1 * phi1 - m2 * l1 * lc2 * (s[2] * s[2]) * s2 - phi2;
  double second = pushed / (m2 * (lc2 * lc2) + i2 - d2 * d2 / d1);
  d[0] = s[2], d[1] = s[3], d[2] = -(d2 * second + phi1) / d1, d[3] = second;
}

static double wrapped(double x) {
  while (x > PI) x -= 2 * PI;
  while (x < -PI) x += 2 * PI;
  return x;
}

static double within(double x, double low, double high) { return x < low ? low : x > high ? high : x; }

static Gained acrobot(double *s, int64_t action) {
  const double dt = 0.2, part[3] = {dt / 2.0, dt / 2.0, dt};
  double k[4][4], at[4], torque = action - 1.0;
  acrobot_derivatives(s, torque, k[0]);
  for (int n = 0; n < 3; n++) {
    for (int i = 0; i < 4; i++) at[i] = s[i] + part[n] * k[n][i];
    acrobot_derivatives(at, torque, k[n + 1]);
  }
  for (int i = 0; i < 4; i++) s[i] += dt / 6.0 * (k[0][i] + 2 * k[1][i] + 2 * k[2][i] + k[3][i]);
  s[0] = wrapped(s[0]), s[1] = wrapped(s[1]);
  s[2] = within(s[2], -4 * PI, 4 * PI), s[3] = within(s[3], -9 * PI, 9 * PI);
  int up = -cos(s[0]) - cos(s[1] + s[0]) > 1.0;
  return (Gained){up ? 0.0 : -1.0, up};
}

static Gained mountain_car(double *s, int64_t action, double goal_velocity) {
  double velocity = within(s[1] + ((action - 1) * 0.001 + cos(3 * s[0]) * -0.0025), -0.07, 0.07);
  double position = within(s[0] + velocity, -1.2, 0.6);
  if (position == -1.2 && velocity < 0) velocity = 0;
  s[0] = position, s[1] = velocity;
  return (Gained){-1.0, position >= 0.5 && velocity >= goal_velocity};
}

// The state is float64 in an episode's first step and float32 in all others; a force out of bounds is a Python number.
static Gained mountain_car_continuous(double *s, float action, double goal_velocity, int first) {
  int bounded = action < -1.0f || action > 1.0f;
  double force = bounded ? (action < 0 ? -1.0 : 1.0) * 0.0015 : (double)(action * 0.0015f), position, velocity;
  if (first) {
    double slope = 0.0025 * cos(3 * s[0]);
    velocity = within(s[1] + (bounded ? force - slope : (double)((float)force - (float)slope)), -0.07, 0.07);
    position = within(s[0] + velocity, -1.2, 0.6);
  } else {
    double slope = 0.0025 * cos((double)(3 * (float)s[0]));
    float change = bounded ? (float)(force - slope) : (float)force - (float)slope, v = (float)s[1] + change;
    velocity = v > 0.07f ? 0.07f : v < -0.07f ? -0.07f : v;
    float p = (float)s[0] + (float)velocity;
    position = p > 0.6f ? 0.6f : p < -1.2f ? -1.2f : p;
  }
  if (position == (first ? -1.2 : (double)-1.2f) && velocity < 0) velocity = 0;
  int there = position >= (first ? 0.45 : (double)0.45f) && velocity >= goal_velocity;
  s[0] = (float)position, s[1] = (float)velocity;
  return (Gained){(there ? 100.0 : 0.0) - (double)action * (double)action * 0.1, there};
}

static Gained pendulum(double *s, float action, double g) {
  float u = action < -2.0f ? -2.0f : action > 2.0f ? 2.0f : action;
  double angle = fmod(s[0] + PI, 2 * PI);
  if (angle < 0) angle += 2 * PI;
  angle -= PI;
  double cost = angle * angle + 0.1 * (s[1] * s[1]) + (double)(0.001f * (u * u));
  s[1] = within(s[1] + (3 * g / 2.0 * sin(s[0]) + (double)(3.0f * u)) * 0.05, -8.0, 8.0);
  s[0] += s[1] * 0.05;
  return (Gained){-cost, 0};
}

static void see(int64_t kind, const double *s, float *to) {
  switch (kind) {
  case ACROBOT:
    to[0] = cos(s[0]), to[1] = sin(s[0]), to[2] = cos(s[1]), to[3] = sin(s[1]), to[4] = s[2], to[5] = s[3];
    break;
  case PENDULUM: to[0] = cos(s[0]), to[1] = sin(s[0]), to[2] = s[1]; break;
  case CARTPOLE: to[0] = s[0], to[1] = s[1], to[2] = s[2], to[3] = s[3]; break;
  default: to[0] = s[0], to[1] = s[1];
  }
}

static void begin(const Classic *of, int64_t i) {
  memcpy(of->state + i * of->size, of->starts + (i * of->ahead + of->next[i]++) * of->size, sizeof(double) * of->size);
  of->steps[i] = 0;
}

// Begins a new episode in each copy -> `observation` [copies][seen].
void reset_all(const Classic *of, float *observation) {
  for (int64_t i = 0; i < of->copies; i++) {
    begin(of, i);
    see(of->kind, of->state + i * of->size, observation + i * of->seen);
  }
}

// Steps each copy once, by `actions` [copies], int64 or float32 -> `observations` [2][copies][seen], `reward` [copies],
// terminated and truncated, `ends` [2][copies]. Where an episode ends, the second of the observations is its last and
// the first the next one's. Returns how many ended; if copy i's action is not below `number`, -1 - i before any step.
int64_t step_all(const Classic *of, const void *actions, int64_t number, float *observations, double *reward,
                 uint8_t *ends) {
  const int64_t *discrete = actions;
  const float *continuous = actions;
  float *last = observations + of->copies * of->seen;
  int64_t ended = 0;
  for (int64_t i = 0; number && i < of->copies; i++)
    if (discrete[i] < 0 || discrete[i] >= number) return -1 - i;
  for (int64_t i = 0; i < of->copies; i++) {
    double *s = of->state + i * of->size;
    Gained gained = {0, 0};
    switch (of->kind) {
    case CARTPOLE: gained = cartpole(s, discrete[i], of->option); break;
    case ACROBOT: gained = acrobot(s, discrete[i]); break;
    case MOUNTAIN_CAR: gained = mountain_car(s, discrete[i], of->option); break;
    case MOUNTAIN_CAR_CONTINUOUS:
      gained = mountain_car_continuous(s, continuous[i], of->option, of->steps[i] == 0);
      break;
    case PENDULUM: gained = pendulum(s, continuous[i], of->option);
    }
    of->steps[i]++;
    int cut = of->limit && of->steps[i] >= of->limit;
    reward[i] = gained.reward, ends[i] = gained.terminated, ends[of->copies + i] = cut;
    see(of->kind, s, observations + i * of->seen);
    if (!gained.terminated && !cut) continue;
    ended++;
    memcpy(last + i * of->seen, observations + i * of->seen, sizeof(float) * of->seen);
    begin(of, i);
    see(of->kind, s, observations + i * of->seen);
  }
  return ended;
}
