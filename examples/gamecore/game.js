// A game process that drives its own sessions: CartPole, over HTTP by Node alone (18.11 or newer).
//
//     node examples/gamecore/game.js [--games 16] [--url http://127.0.0.1:8000] [--token TOKEN]
//
// plays this many games at once, and a new one for each that ends, until the gateway is gone.

const { randomUUID } = require("node:crypto");
const http = require("node:http");
const { setTimeout: sleep } = require("node:timers/promises");
const { parseArgs } = require("node:util");

const text = (value) => ({ type: "string", default: value });
const { games, url, token } = parseArgs({
  options: { games: text("16"), url: text("http://127.0.0.1:8000"), token: text("") },
}).values;

class CartPole {
  constructor() {
    this.state = Array.from({ length: 4 }, () => Math.random() * 0.1 - 0.05);
    this.steps = 0;
  }

  step(action) {
    let [x, speed, angle, turn] = this.state;
    const pull = (action === 1 ? 10 : -10) + 0.05 * turn * turn * Math.sin(angle);
    const bend =
      (9.8 * Math.sin(angle) - (Math.cos(angle) * pull) / 1.1) / (0.5 * (4 / 3 - (0.1 * Math.cos(angle) ** 2) / 1.1));
    const push = (pull - 0.05 * bend * Math.cos(angle)) / 1.1;
    this.state = [x + 0.02 * speed, speed + 0.02 * push, angle + 0.02 * turn, turn + 0.02 * bend];
    this.steps += 1;
    this.fallen = Math.abs(this.state[0]) > 2.4 || Math.abs(this.state[2]) > Math.PI / 15;
    return this.fallen || this.steps === 500; // a game is cut off after 500 steps
  }
}

const agent = new http.Agent({ keepAlive: true }); // connections are kept: a game asks at every step

// Send one request; if another gateway holds the session (307), send it to that gateway.
function ask(game, kind, message, at = url) {
  const headers = { game_id: game, step_kind: kind, ...(token && { token }) };
  return new Promise((resolve, reject) => {
    const request = http.request(at, { method: "POST", agent, headers }, async (reply) => {
      try {
        let said = "";
        for await (const part of reply) said += part;
        const elsewhere = reply.statusCode === 307 && reply.headers.location;
        resolve(elsewhere ? await ask(game, kind, message, elsewhere) : { status: reply.statusCode, said });
      } catch (error) {
        reject(error);
      }
    });
    request.on("error", reject);
    request.end(message && JSON.stringify(message));
  });
}

async function play() {
  const game = randomUUID();
  const pole = new CartPole();
  const { status, said } = await ask(game, "start");
  if (status === 429 || status === 503) return sleep(1000); // no weights yet, or no room
  if (status !== 200) throw new Error(said.trim());
  for (let reward = 0, over = false; !over; reward = 1) {
    const { status, said } = await ask(game, "tick", { observation: pole.state, reward });
    if (status !== 200) return console.log(status, said.trim());
    over = pole.step(JSON.parse(said).action);
  }
  await ask(game, "end", { observation: pole.state, reward: 1, out_of_time: !pole.fallen });
}

async function keepPlaying() {
  for (let played = false, lost = 0; ; ) {
    try {
      await play();
      [played, lost] = [true, 0];
    } catch (error) {
      if (!error.code) throw error; // not a failure of the connection
      lost += 1;
      if (played && lost > 1) return; // it failed again: the gateway is gone
      await sleep(played ? 0 : 1000); // the gateway is still starting
    }
  }
}

for (let place = 0; place < Number(games); place += 1) keepPlaying();
