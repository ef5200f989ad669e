"""The evaluator of the seed text, to the letter between the two marks; above them, its blanks."""

import os
import pickle
import time as real_time

import fsrun as nb

RUN_ID = "big-2026"
QUEUE = os.path.join(os.environ["FSRUN_ROOT"], "speech", RUN_ID, "queue")
best = [-1.0]
os.makedirs("best", exist_ok=True)


class time:
    @staticmethod
    def sleep(seconds: float) -> None:
        real_time.sleep(seconds / 600)


def evaluate(path):
    with open(path, "rb") as file:
        epoch = pickle.load(file)["epoch"]
    with open("evaluated", "a") as file:
        file.write(f"{epoch}\n")
    return {"eval/pesq": epoch / 10, "eval/si_sdr": -float(epoch)}


def epoch_of(path):
    return int(os.path.basename(path)[len("epoch_") : -len(".pt")])


def is_best(scores):
    better = scores["eval/pesq"] > best[0]
    best[0] = max(best[0], scores["eval/pesq"])
    return better


# fmt: off
# --- the text
with nb.init("speech", run_id=RUN_ID, job="eval") as run:
    while True:
        todo = sorted(p for p in os.listdir(QUEUE) if p.startswith("epoch_"))
        if not todo:
            if os.path.exists(f"{QUEUE}/FINISHED"):
                break
            time.sleep(30)
            continue
        path = f"{QUEUE}/{todo[0]}"
        scores = evaluate(path)                    # {"eval/pesq": ..., "eval/si_sdr": ...}
        run.add_scalar(scores, step=epoch_of(path))
        if is_best(scores):
            os.replace(path, "best/model.pt")
        else:
            os.remove(path)
    run.add_artifact("model", "best/", type="checkpoint")
# --- the end of the text
