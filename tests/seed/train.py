"""The trainer of the seed text, to the letter between the two marks; above them, its blanks."""

import argparse
import os
import pickle
import shutil
import time

import fsrun as nb

parser = argparse.ArgumentParser()
parser.add_argument("--eval-queue")
args = parser.parse_args()
RUN_ID = "big-2026"
cfg = {"lr": 3e-4}
epochs = int(os.environ["EPOCHS"])
PAUSE = float(os.environ.get("PAUSE", "0.02"))
os.makedirs("ckpt", exist_ok=True)


class torch:
    @staticmethod
    def save(state: object, path: str) -> None:
        with open(path, "wb") as file:
            pickle.dump(state, file)


# fmt: off
def enqueue(path, queue):
    dest = os.path.join(queue, os.path.basename(path))
    tmp = dest + ".tmp"
    try:
        os.link(path, tmp)
    except OSError:                                 # another disk: copy instead
        shutil.copy2(path, tmp)
    os.replace(tmp, dest)


# --- the text
with nb.init("speech", run_name="big", run_id=RUN_ID, config=cfg) as run:
    for epoch in range(epochs):
        time.sleep(PAUSE)
        loss, state = 1.0 / (epoch + 1), {"epoch": epoch}
        if os.path.exists(f"ckpt/epoch_{epoch:03d}.pt"):
            os.remove(f"ckpt/epoch_{epoch:03d}.pt")
        run.add_scalar({"train/loss": loss}, step=epoch)
        path = f"ckpt/epoch_{epoch:03d}.pt"
        torch.save(state, path)                    # as before
        if args.eval_queue:                        # the only change for a second job
            enqueue(path, args.eval_queue)
    if args.eval_queue:
        open(f"{args.eval_queue}/FINISHED", "w").close()
# --- the end of the text
