"""Commands of README.md and the pages: each runs in a test, as written or shortened, or a reason says why not.

`python -m workers.train ...` and `make TARGET` need no entry: tests verify the settings as a launcher does, and that
the target exists.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from workers.command import CHOOSES, LEAGUE

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md")), *sorted(ROOT.glob("examples/*/README.md"))]
LANGUAGES = {"bash", "console", "text", "python", "yaml"}
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def languages(page: Path) -> list[str]:
    """Return the language that each code block of a page names."""
    return [language for language, _ in BLOCK.findall(page.read_text())]


def commands() -> Iterator[str]:
    """Yield each command of the pages once, without its comment: lines of bash blocks, `$ ` lines of console blocks."""
    return iter(first_pages())


@cache
def first_pages() -> Mapping[str, Path]:
    """Return command -> the first page that has it."""
    found: dict[str, Path] = {}
    for page in PAGES:
        for language, text in BLOCK.findall(page.read_text()):
            lines = {"bash": r"^(?!#)(.+)$", "console": r"^\$ (.+)$"}.get(language, r"(?!)")
            for line in re.findall(lines, re.sub(r"\\\n\s*", "", text), re.MULTILINE):  # a command on two lines
                found.setdefault(re.sub(r"\s+#\s.*$", "", line).strip(), page)
    return found


def shown(command: str) -> list[str]:
    """Return the lines of output that the pages show below a command, without numbers and without lines `...`."""
    blocks = [text for page in PAGES for language, text in BLOCK.findall(page.read_text()) if language == "console"]
    found = [text.partition(f"$ {command}\n")[2].partition("\n$ ")[0] for text in blocks]
    return [comparable(line) for text in found for line in text.splitlines() if line.strip() != "..."]


def comparable(line: str) -> str:
    """Return a line with N for each number, to compare output."""
    return " ".join(re.sub(r"\d[\d,.]*", "N", line).split())


def training(command: str) -> list[str] | None:
    """Return the settings of a command that trains, directly or by `make`; None for any other."""
    if made := re.fullmatch(r'make (train|league)(?: ARGS="([^"]*)")?', command):
        given = shlex.split(made[2] or "")
        chosen = made[1] == "train" or any(word.startswith(CHOOSES) for word in given)
        return given if chosen else [LEAGUE, *given]
    if match := re.fullmatch(r"python -m workers\.train( [^&|;]*)?", command):
        return shlex.split(match[1] or "")
    return None


def target(command: str) -> str | None:
    """Return the target of a command that is `make` alone."""
    match = re.fullmatch(r"make ([\w.-]+)( [A-Z]+=\S+)*", command)
    return match and match[1]


@dataclass(frozen=True)
class Run:
    """A command that is run, with `more` words and `typed` as its input; Ctrl-C follows once it has printed `until`.

    `where`: "saved", in a folder with trained runs; "league", where Redis also holds a league that nobody plays;
    "live", beside a run that trains; "last", beside it once it may end; "gone", on a run without a launcher. The exit
    status has to be `status` (130 counts as 0 after Ctrl-C), and the output has to contain `says`.
    """

    where: str = "saved"
    more: str = ""
    typed: str = ""
    until: str = ""
    status: int = 0
    says: str = ""


@dataclass(frozen=True)
class NotRun:
    """A command that is not run, for this reason."""

    because: str


DOCKER = NotRun(
    "it needs Docker and an image of several minutes, as make compose-test does; test_compose.py reads the files"
)
CLUSTER = NotRun("it needs a Kubernetes cluster; tests/test_kubernetes.py validates what is applied")
INSTALLS = NotRun("it installs packages")
BUILDS = NotRun("it downloads and builds for minutes")
LONG = NotRun("it trains for minutes; --list, beside it, is run")
BY_HAND = NotRun("tests/integration starts these roles by hand: roles_by_hand.py, test_served.py, test_flower.py")
ASKS = (
    "curl localhost:8001 -H 'session: a' -H 'step_kind: auto' -d '{\"observation\": [0.1, 0, 0, 0.2], \"reward\": 1}'"
)
DEAD = NotRun("there has to be a dead letter; the tests of dead letters list, show, replay, correct and drop some")
RESPONSE = NotRun("it learns for minutes; tests/workers/evaluation/test_best_response.py lets a small one learn")
CLIENTS = NotRun("tests/integration/test_gamecore_clients.py compiles it and trains by it, at a port of its own")
NAMED = NotRun("an address of a reader's own")

ENTER = "0\n" * 20  # always the first legal move
TABLE: dict[str, Run | NotRun] = {
    # README.md
    "sudo apt-get install git build-essential python3-venv": INSTALLS,
    'eval "$(python -m workers.servers env)"': Run("live", more='&& test -n "$WARREN_RUN"'),
    "python -m league.show --watch": Run("league", until="Elo"),
    "python -m league.manage add hunter pfsp weighting=linear": Run("league", says="added hunter (pfsp)"),
    "python -m league.manage pause main_exploiter": Run("league", says="main_exploiter is paused"),
    "python -m league.replay": Run("league", says="equal to the live league"),
    "python -m workers.train resume=runs/kuhn/TRIAL": NotRun("tests/faults/test_league_resumes.py resumes leagues"),
    "python -m workers.play runs/cartpole/TRIAL --render human": Run(more="--games 1", says="mean return"),
    ".venv/bin/pip install -c constraints.txt -e '.[gateway]'": INSTALLS,
    "python -m workers.deploy run=runs/cartpole": Run(more="gateway.port=0", until='"port"'),
    # docs/algorithms.md
    "python -m workers.play runs/cartpole --games 200 --record games.safetensors": Run(
        more="--games 4", says="4 episodes are in games.safetensors"
    ),
    # These read the file that the command above writes:
    "python -m workers.imitate project=clones imitation.data=games.safetensors": Run(
        more="imitation.passes=1 imitation.evaluation_games=2", says="the clone's mean return"
    ),
    "python -m workers.imitate experiment=connect_four project=clones imitation.data=runs/connect_four": Run(
        more="imitation.player=main imitation.passes=1 imitation.evaluation_games=2 imitation.games=20",
        says="the clone's mean return",
    ),
    # docs/configuration.md
    "python -m workers.train --help algorithm=impala league=kuhn": Run(says="actors=2"),
    "python -m workers.train --cfg job actors=4": Run(says="actors: 4"),
    "python -m workers.train broker=foo env.id=CartPol-v1 actors=0": Run(
        status=2, says="3 settings are wrong; no run was started"
    ),
    # docs/deploying.md
    ".venv/bin/pip install -c constraints.txt -e '.[gateway,onnx]'": INSTALLS,
    "python examples/gamecore/nim.py": NotRun("the tests of its league run it, against a port of their own"),
    "python -m workers.deploy run=runs/cartpole-gamecore": Run(more="gateway.port=0", until='"port"'),
    "python examples/gamecore/game.py": NotRun("the test of a gateway with games runs it, against a port of its own"),
    "python -m workers.deploy run=runs/cartpole gateway.port=8001": NotRun("the test of the next command starts it"),
    ASKS: NotRun("a test of its own sends it to a deployment at a port of its own"),
    "python -m workers.export run=runs/cartpole --to cartpole.onnx": Run(says="cartpole.onnx: "),
    "python -m workers.export run=runs/kuhn player=main@1200 --to kuhn.onnx": Run(says="kuhn.onnx: "),
    """python -m workers.serve workers.deployment.model_service:Model --kwargs '{"run": "runs/cartpole"}'""": Run(
        "live", until="serves model.clone, model.forward", status=1  # Celery's, after Ctrl-C
    ),
    "python -m workers.clone run=runs/kuhn version=1200 name=champion league=RUN": Run("league", says="champion"),
    # docs/delivery.md
    "python -m workers.dead --run NAME list --each": DEAD,
    "python -m workers.dead --run NAME show ID": DEAD,
    "python -m workers.dead --run NAME replay actor.push": DEAD,
    "python -m workers.dead --run NAME show ID --json > letter.json": DEAD,
    "python -m workers.dead --run NAME replay ID --from letter.json": DEAD,
    'python -m workers.dead --run NAME drop --reason "too often"': DEAD,
    # docs/docker.md
    "docker compose up": DOCKER,
    "EXPERIMENT=kuhn docker compose up": DOCKER,
    "docker compose --profile dashboard --profile deploy up -d": DOCKER,
    "EXPERIMENT=cartpole_gamecore docker compose up": DOCKER,
    "docker compose -f docker-compose.yml -f docker/gpu.yml up": DOCKER,
    "EXPERIMENT=kuhn docker compose run --rm tools python -m league.show": DOCKER,
    "EXPERIMENT=kuhn docker compose run --rm tools python -m workers.dead list": DOCKER,
    "EXPERIMENT=kuhn docker compose run --rm tools python -m workers.doctor --run kuhn": DOCKER,
    "EXPERIMENT=kuhn docker compose down": DOCKER,
    "docker node update --label-add warren=home NODE": DOCKER,
    "docker run --rm --user $(id -u) --volume $folder:/to warren:local python -m workers.rights --run cartpole files "
    "/to": DOCKER,
    "for file in $(cd $folder && ls */*); do docker secret create warren-$(echo $file | tr / -) $folder/$file; "
    "done": DOCKER,
    "rm -r $folder": DOCKER,
    "WARREN_IMAGE=REGISTRY/warren:1 WARREN_ACTORS=8 docker stack deploy --compose-file docker/swarm/stack.yml "
    "warren": DOCKER,
    "docker service logs --follow warren_learner": DOCKER,
    # docs/environments.md
    "git clone https://github.com/TeamFightingICE/FightingICE && cd FightingICE": BUILDS,
    "git checkout origin/v/5.3 -- data": BUILDS,
    "mkdir classes && javac -encoding UTF-8 -nowarn -d classes -cp \"$(find lib -name '*.jar' | paste -sd:)\" "
    "$(find src -name '*.java')": BUILDS,
    "export WARREN_FIGHTINGICE=$PWD": BUILDS,
    "python -m envs.check ALE/Pong-v5 preprocessing=atari --steps 1000": Run(more="--steps 100", says="no problems"),
    # docs/gamecores.md
    "node examples/gamecore/game.js": CLIENTS,
    "g++ -std=c++17 -O2 -pthread examples/gamecore/game.cpp -o cartpole && ./cartpole": CLIENTS,
    # docs/installing.md
    "pip install .": INSTALLS,
    "cd ~/my_games && warren train": NotRun("it trains for minutes, as python -m workers.train does"),
    # docs/kubernetes.md
    "docker build --file docker/Dockerfile --tag warren:local .": DOCKER,
    "kubectl apply -f docker/kubernetes/base/namespace.yaml": CLUSTER,
    "folder=$(mktemp -d)": CLUSTER,
    "docker run --rm --user $(id -u) --volume $folder:/to warren:local python -m workers.rights --run cartpole "
    "--domain warren.svc files /to": DOCKER,
    "for role in $(cd $folder && ls -d */); do kubectl -n warren create secret generic ${role%/} "
    "--from-file=$folder/$role; done": CLUSTER,
    "kubectl apply -k docker/kubernetes/overlays/small": CLUSTER,
    "kubectl -n warren logs -f learner-0": CLUSTER,
    # docs/league.md
    "python -m league.replay --run NAME": Run("league", says="equal to the live league"),
    "python -m league.replay --run NAME --until 2026-05-04T12:00": Run("league", says="main"),
    "python -m league.replay --file runs/kuhn/TRIAL": Run(says="main"),
    "python -m league.replay --run NAME --through pfsp --set weighting=linear --player main": Run("league"),
    "python -m league.show --run NAME": Run("league", says="Elo"),
    "python -m league.show --run NAME --watch": Run("league", until="Elo"),
    "python -m league.manage --run NAME kinds": Run("league", says="pfsp"),
    "python -m league.manage --run NAME add hunter pfsp weighting=linear --rule learning_rate=0.001": Run(
        "league", says="added hunter (pfsp)"
    ),
    "python -m league.manage --run NAME pause main": Run("league", says="main is paused"),
    "python -m league.manage --run NAME freeze main": Run("league", says="froze main at main@"),
    "python -m league.manage --run NAME set hunter config.weighting=variance rules.learning_rate=0.0005": Run("league"),
    "python -m workers.league_pictures runs/kuhn/TRIAL": Run(says="pictures/payoff.png"),
    "python -m league.models --run NAME list": Run("league", says="model main@"),
    "python -m league.models --run NAME save FOLDER": Run("league"),
    "python -m league.models --run OTHER restore FOLDER": Run("league"),
    # docs/learning.md
    "python -m benchmarks.learning --list": Run(says="cartpole-ppo"),
    "python -m benchmarks.learning cartpole-a2c --peer --seeds 3": LONG,
    "pip install -e '.[peers,box2d]'": INSTALLS,
    # docs/replays.md
    "python -m workers.replay runs/connect_four": Run(says="results are the home player's mean returns"),
    "python -m workers.replay runs/connect_four last --game 1": Run(says="game 1 of"),
    "python -m workers.replay runs/football_league 3fa2 --video match.gif": NotRun(
        "football is built in minutes; tests/workers/replays/test_video.py films another game"
    ),
    "python -m workers.replay runs/connect_four --check": Run(says="came to their recorded results"),
    "python -m workers.play openspiel:tic_tac_toe": Run(typed=ENTER, says="your move as player 0"),
    "python -m workers.play openspiel:kuhn_poker --against runs/kuhn": Run(typed=ENTER, says="game 1 is over"),
    "python -m workers.play runs/connect_four/TRIAL --player main@0 --seat alternate": Run(
        typed=ENTER, says="game 1 is over"
    ),
    # docs/dashboard.md
    "python -m workers.dashboard": Run(more="--port 0", until="token="),
    "python -m workers.dashboard runs/kuhn/TRIAL": Run(more="--port 0", until="token="),
    "python -m benchmarks.dashboard_pictures runs --league kuhn/one --game connect_four/one --plain cartpole/ppo "
    "--plain cartpole/slow": NotRun("tests/benchmarks/test_dashboard_pictures.py runs it on small runs"),
    # docs/scaling.md
    "export WARREN_REDIS_URL=sentinel://:PASSWORD@one:26379,two:26379,three:26379/SERVICE/0": NAMED,
    'export WARREN_BROKER_URL="amqp://user:PASSWORD@one:5672//;amqp://user:PASSWORD@two:5672//;'
    'amqp://user:PASSWORD@three:5672//"': NAMED,
    "export WARREN_QUEUES=quorum": NAMED,
    "make horovod && .venv/bin/python -m workers.train learners=2 actors=4 allreduce=horovod": BUILDS,
    "python -m workers.train run=NAME host=box-2": NotRun("it joins a run of another host: tests/integration"),
    # docs/security.md
    "export WARREN_PASSWORDS=~/warren-passwords": NAMED,
    "python -m workers.rights --run NAME apply": NotRun(
        "tests/integration/test_users_of_roles.py trains with the users it makes"
    ),
    "python -m workers.rights --run NAME show actor": Run(says="%R~warren."),
    "python -m workers.servers certificates tls rabbitmq redis 10.0.0.7": Run(says="tls-ca-cert-file"),
    # docs/services.md
    "python my_script.py": Run("league", says="of the run"),
    "python -m workers.run examples/dqn/dqn.yaml": Run("league", until="run name"),
    "python -m workers.scale --run NAME Actor=+1 cartpole=-1": NotRun(
        "tests/integration/test_scaled_services.py changes the services and environments of its own runs"
    ),
    # docs/strength.md
    "python -m workers.exploitability runs/kuhn/TRIAL": RESPONSE,
    "python -m workers.exploitability runs/kuhn/TRIAL --exact": RESPONSE,
    "python -m workers.exploitability runs/kuhn/TRIAL --budget 1000000 --deals 100000 learning_rate=0.002": RESPONSE,
    "python -m workers.tournament runs/kuhn/TRIAL:main runs/kuhn/TRIAL:mixture uniform --games 10000": NotRun(
        "it plays for minutes; tests/workers/evaluation/test_tournament.py plays a small one"
    ),
    # docs/trained.md
    "python -m workers.play runs/cartpole/TRIAL --games 5": Run(says="mean return"),
    "python -m workers.play runs/cartpole --video cartpole.gif": Run(more="--games 1", says="are in cartpole.gif"),
    "python -m workers.play runs/kuhn/TRIAL": Run(typed=ENTER, says="game 1 is over"),
    "python -m workers.play runs/kuhn/TRIAL --player main@1200 --seat 1": Run(typed=ENTER, says="game 1 is over"),
    "python -m workers.play runs/kuhn/TRIAL --against main_exploiter": Run(says="main"),
    "python -m workers.play runs/kuhn/TRIAL --rated ann --games 20": Run(
        status=2, says="games count while its run goes on"
    ),
    # docs/training.md
    "python -m workers.doctor": Run("league", says="broker version"),
    "python -m workers.doctor experiment=kuhn actors=8": Run("league", says="broker version"),
    "python -m workers.doctor --run NAME": Run("live", says="broker version"),
    "python -m workers.doctor --role learner run=NAME trial=TRIAL": Run("league", says="broker version"),
    'python -m workers.doctor --broker-url URL --redis-url URL --rabbitmqctl "docker exec NAME rabbitmqctl"': DOCKER,
    "python -m workers.train resume=runs/cartpole/TRIAL": Run(more="total_steps=7000", says="finished: "),
    "python -m workers.failures runs/cartpole": Run(says="run folder runs/cartpole/TRIAL"),
    "tensorboard --logdir runs": NotRun("TensorBoard's own command"),
    "python -m workers.runs": Run("live", says="training"),
    "python -m workers.scale --run NAME actors=4": Run("live", says="actors="),
    "python -m workers.runs stop NAME": Run("last", says="told the run to stop"),
    "python -m workers.runs purge NAME": Run("gone", more="--yes"),
    "export WARREN_BROKER_URL=amqp://user:password@host:5672// "
    "WARREN_REDIS_URL=redis://:password@host:6379/0": NAMED,
    "python -m workers.learner run=NAME trial=TRIAL": BY_HAND,
    "python -m workers.actor run=NAME": BY_HAND,
    "python -m workers.env run=NAME": BY_HAND,
    "python -m workers.flower run=NAME flower_port=5555": BY_HAND,
    # docs/watching.md
    "pip install '.[otel]'": INSTALLS,
    "pip install '.[wandb,mlflow]'": INSTALLS,
    "OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4318 python -m workers.train experiment=kuhn "
    '"middleware=[tasks.tracing:Tracing]"': NotRun("it needs a collector; tests/tasks/test_tracing.py keeps the spans"),
    # docs/your_game.md
    "python -m workers.play runs/nim/TRIAL": Run(typed=ENTER, says="game 1 is over"),
    "python -m workers.dashboard runs/nim/TRIAL": Run(more="--port 0", until="token="),
}  # fmt: skip


def unclassified() -> list[str]:
    """Return the commands that are neither in the table nor verified without an entry."""
    return [one for one in commands() if one not in TABLE and training(one) is None and target(one) is None]


def stale() -> list[str]:
    """Return the entries of the table that no page has."""
    return sorted(set(TABLE) - set(commands()))
