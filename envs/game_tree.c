// Games on one tree, stepped as by envs/game_tree.py with the same numbers: a move, chance's, and a new game's start.
#include <stdint.h>
#include <string.h>

enum { CHANCE = -1, TERMINAL = -2 };

typedef struct {
  int64_t actions, thresholds, floats; // of an information state, a chance node, an observation
  const int8_t *player, *owner;
  const int32_t *first_child, *information_state, *slot, *chance;
  const double *returns, *threshold;
  const float *observation;
  const uint8_t *action_mask;
} Tree;

// Chance of N games, as in envs/two_player/chance.py; `fresh` are seeds from which no game has begun.
typedef struct {
  int64_t *seeds;
  uint64_t *state;
  const int64_t *fresh;
  const uint64_t *fresh_state;
} Draws;

static double uniform(uint64_t *state) {
  uint64_t x = *state += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return ((double)((x ^ (x >> 31)) >> 11) + 0.5) * 0x1p-53;
}

static int64_t past_chance(const Tree *tree, int64_t node, uint64_t *state) {
  while (tree->player[node] == CHANCE) {
    const double *threshold = tree->threshold + tree->chance[node] * tree->thresholds, u = uniform(state);
    int64_t drawn = 0;
    for (int64_t i = 0; i < tree->thresholds; i++) drawn += u >= threshold[i];
    node = tree->first_child[node] + drawn;
  }
  return node;
}

// Makes one move in each of n games; returns how many ended and began anew. Arrays [n, ...]; reward is [n][2].
int64_t step(const Tree *tree, const Draws *draws, int64_t n, const int64_t *action, int64_t *nodes, int8_t *to_move,
             float *observation, uint8_t *action_mask, float *reward, uint8_t *done) {
  int64_t begun = 0;
  for (int64_t i = 0; i < n; i++) {
    int64_t before = nodes[i], state = tree->information_state[before];
    int64_t node = tree->first_child[before] + tree->slot[state * tree->actions + action[i]];
    node = past_chance(tree, node, draws->state + i);
    float got = (float)(tree->returns[node] - tree->returns[before]);
    reward[2 * i] = got, reward[2 * i + 1] = -got;
    done[i] = tree->player[node] == TERMINAL;
    if (done[i]) {
      draws->seeds[i] = draws->fresh[begun], draws->state[i] = draws->fresh_state[begun], begun++;
      node = past_chance(tree, 0, draws->state + i);
    }
    nodes[i] = node, state = tree->information_state[node];
    to_move[i] = tree->owner[state];
    memcpy(observation + i * tree->floats, tree->observation + state * tree->floats, sizeof(float) * tree->floats);
    memcpy(action_mask + i * tree->actions, tree->action_mask + state * tree->actions, tree->actions);
  }
  return begun;
}
