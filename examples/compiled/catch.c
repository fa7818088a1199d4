// N games of Catch (Osband et al. 2020, bsuite): a ball falls through 10 rows of 5 cells, a paddle below moves to catch it.
#include <stdint.h>

enum { ROWS = 10, CELLS = 5 };

typedef struct {
  int32_t row, cell, paddle;
} Game;

static void see(const Game *game, float *to) {
  for (int i = 0; i < ROWS * CELLS; i++) to[i] = 0;
  to[game->row * CELLS + game->cell] = 1;
  to[(ROWS - 1) * CELLS + game->paddle] = 1;
}

void begin(Game *games, int64_t n, const int32_t *cell, float *seen) {
  for (int64_t i = 0; i < n; i++) games[i] = (Game){0, cell[i], CELLS / 2}, see(games + i, seen + i * ROWS * CELLS);
}

// Step by `action` (left, stay or right). Writes what is seen, the last view of games that ended, and rewards;
// `cell` holds the cell of the next game's ball.
void step(Game *games, int64_t n, const int64_t *action, const int32_t *cell, float *seen, float *last, double *reward,
          uint8_t *over) {
  for (int64_t i = 0; i < n; i++) {
    Game *game = games + i;
    int32_t paddle = game->paddle + action[i] - 1;
    game->paddle = paddle < 0 ? 0 : paddle >= CELLS ? CELLS - 1 : paddle;
    over[i] = ++game->row == ROWS - 1;
    reward[i] = over[i] ? (game->cell == game->paddle ? 1.0 : -1.0) : 0.0;
    see(game, last + i * ROWS * CELLS);
    if (over[i]) *game = (Game){0, cell[i], CELLS / 2};
    see(game, seen + i * ROWS * CELLS);
  }
}
