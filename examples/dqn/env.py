"""The environment: plays CartPole-v1, asks the actor for actions and sends each experience to the learner."""

import time
from collections import deque

import gymnasium as gym

from tasks.solver import remote

max_episode, goal = 2000, 195  # the mean return over 100 episodes that solves CartPole-v0


@remote
def policy_eval():
    pass


@remote
def send_to_learner():
    pass


def ensured_policy_eval(state):
    while True:
        data = policy_eval(state)
        if data is not None:
            return data
        time.sleep(1)


env = gym.make("CartPole-v1")
start = time.time()
step = 0
returns = deque(maxlen=100)
for i_episode in range(1, max_episode):
    state, _ = env.reset()
    ep_reward = 0
    for _t in range(1, 1000):
        action = ensured_policy_eval(state)
        next_state, reward, terminated, truncated, info = env.step(action)
        ep_reward += reward
        send_to_learner([state, reward, action, next_state, 0 if terminated else 1])
        state = next_state
        step += 1
        if step % 1000 == 0:
            end = time.time()
            time_consumption = end - start
            print(
                f"The time consumption for 1000 frames : {time_consumption:.2f}, speed : {1000 / time_consumption:.0f}"
            )
            start = time.time()
        if terminated or truncated:
            break
    returns.append(ep_reward)
    mean = sum(returns) / len(returns)
    print(f"episode {i_episode}, {step} steps, return {ep_reward:.0f}, mean of the last {len(returns)} {mean:.1f}")
    if len(returns) == 100 and mean >= goal:
        print(f"solved: mean return {mean:.1f} over 100 episodes, after {i_episode} episodes")
        break
