"""A pitch of Google Research Football from above, drawn by OpenCV: the library's own pictures need a display."""

from __future__ import annotations

from typing import Any

import numpy as np

WIDTH, HEIGHT, MARGIN = 640, 320, 32  # pixels; the pitch lies within the margin
LEFT, RIGHT, BALL, LINE, GRASS = (235, 235, 235), (220, 60, 50), (255, 210, 0), (200, 230, 200), (46, 125, 50)
LONG, WIDE, GOAL = 1.0, 0.42, 0.044  # half the pitch's length and width, half the goal's, in library units


def picture(seen: dict[str, Any]) -> np.ndarray:
    """Return uint8 [HEIGHT, WIDTH, 3] of one observation; the active player has a ring, the score is at the top."""
    import cv2

    def at(place: Any) -> tuple[int, int]:
        x = MARGIN + (float(place[0]) / LONG + 1) / 2 * (WIDTH - 2 * MARGIN)
        y = MARGIN + (float(place[1]) / WIDE + 1) / 2 * (HEIGHT - 2 * MARGIN)
        return round(x), round(y)

    image = np.full((HEIGHT, WIDTH, 3), GRASS, np.uint8)
    cv2.rectangle(image, at((-LONG, -WIDE)), at((LONG, WIDE)), LINE, 2)
    cv2.line(image, at((0, -WIDE)), at((0, WIDE)), LINE, 1)
    cv2.circle(image, at((0, 0)), 40, LINE, 1)
    for end in (-LONG, LONG):
        cv2.line(image, at((end, -GOAL)), at((end, GOAL)), (255, 255, 255), 6)
    for team, colour in (("left_team", LEFT), ("right_team", RIGHT)):
        for place in seen[team]:
            cv2.circle(image, at(place), 7, colour, -1, cv2.LINE_AA)
    if 0 <= seen["active"] < len(seen["left_team"]):
        cv2.circle(image, at(seen["left_team"][seen["active"]]), 11, BALL, 2, cv2.LINE_AA)
    cv2.circle(image, at(seen["ball"][:2]), 4, BALL, -1, cv2.LINE_AA)
    text = f"{seen['score'][0]} : {seen['score'][1]}   {seen['steps_left']} steps left"
    cv2.putText(image, text, (MARGIN, 22), cv2.FONT_HERSHEY_SIMPLEX, 0.5, (255, 255, 255), 1, cv2.LINE_AA)
    return image
