"""Trains a small language model with DistributedDataParallel so that a failure costs little.

    torchrun --nproc-per-node=2 ddp.py --checkpoint-dir=checkpoints

Started again with the same command, whatever ended it, it goes on from its newest checkpoint with the very batches that
would have come next, on as many ranks as there are then. Each rank has the whole state, so rank 0 alone writes the
checkpoint; fsdp.py is the same training for models that do not fit on one GPU. docs/training.md says which part is
there for what, and docs/elastic-training.md what another number of ranks asks for.
"""

import argparse
import itertools
import json
import math
import os
import pickle
import signal
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

VOCABULARY, LENGTH, WIDTH, LAYERS, SEQUENCES = 32, 32, 64, 2, 4096


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="A training that recovers, with DistributedDataParallel.")
    parser.add_argument("--steps", type=int, default=1000, help="how many in all, those before a failure included")
    parser.add_argument("--batch-size", type=int, default=32, help="sequences in a step, of all ranks together")
    parser.add_argument("--micro-batch-size", type=int, default=32, help="how many a rank has in memory at once")
    parser.add_argument("--learning-rate", type=float, default=3e-3)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--checkpoint-dir", type=Path, required=True, help="on a volume that outlives pod and node")
    parser.add_argument("--checkpoint-every", type=int, default=100, help="steps")
    parser.add_argument("--loss-log", type=Path, help="a file for what is printed; it is appended to")
    parser.add_argument("--joined-file", type=Path, help="made once all ranks have met (docs/joined-probe.md)")
    parser.add_argument(
        "--timeout-seconds", type=int, default=300, help="of a collective; longer than a checkpoint takes to be written"
    )
    parser.add_argument(
        "--hang-seconds", type=float, default=3, help="after SIGTERM, to end the step; longer than two steps take"
    )
    return parser.parse_args()


class Corpus(Dataset[torch.Tensor]):
    """Sequences of a made-up language: a token follows from the two before it, and one in ten from nothing.

    Made from the seed, so that every rank, and every incarnation of it, has the same.
    """

    def __init__(self, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.tokens = torch.randint(VOCABULARY, (SEQUENCES, LENGTH + 1), generator=generator)
        follows = torch.rand(SEQUENCES, LENGTH + 1, generator=generator) < 0.9
        for at in range(2, LENGTH + 1):
            rule = (5 * self.tokens[:, at - 1] + 3 * self.tokens[:, at - 2] + 1) % VOCABULARY
            self.tokens[:, at] = torch.where(follows[:, at], rule, self.tokens[:, at])

    def __len__(self) -> int:
        return SEQUENCES

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.tokens[index]


class Model(nn.Module):
    """A transformer that foresignals the next token."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.token = nn.Embedding(VOCABULARY, WIDTH)
        self.position = nn.Embedding(LENGTH, WIDTH)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=dropout, batch_first=True, norm_first=True)
            for _ in range(LAYERS)
        )
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        length = tokens.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(length, device=tokens.device)
        hidden = self.token(tokens) + self.position(torch.arange(length, device=tokens.device))
        for layer in self.layers:
            hidden = layer(hidden, src_mask=mask, is_causal=True)
        logits: torch.Tensor = self.head(hidden)
        return logits


def warm_up_and_decay(step: int) -> float:
    """The share of the learning rate. It does not look at the number of steps, so that a training can be prolonged."""
    return min(1.0, (step + 1) / 50) / math.sqrt(1 + step / 50)


def batches(first_step: int, args: argparse.Namespace) -> Iterator[tuple[int, torch.Tensor]]:
    """Epoch and this rank's batch of each step from `first_step` (from 0) on, as if the training had never stopped.

    The order of an epoch follows from seed and epoch alone, and step n takes the n-th batch of it, whatever the number
    of ranks: so a step number is all that has to be remembered. Ranks that do not divide the batch share it unevenly,
    by one sequence.
    """
    corpus, rank, world, size = Corpus(args.seed), dist.get_rank(), dist.get_world_size(), args.batch_size
    first_epoch, done = divmod(first_step, len(corpus) // size)
    for epoch in itertools.count(first_epoch):
        order = torch.randperm(len(corpus), generator=torch.Generator().manual_seed(args.seed + epoch)).tolist()
        starts = range(done * size, len(corpus) - size + 1, size)  # what was trained already is not even loaded
        done = 0
        for batch in DataLoader(corpus, batch_sampler=[order[at : at + size][rank::world] for at in starts]):
            yield epoch, batch


def pieces_of(args: argparse.Namespace, world: int) -> int:
    """In how many pieces a rank trains its share: all in as many, or one would wait in a collective for ever."""
    smallest_share, uneven = divmod(args.batch_size, world)
    pieces = math.ceil((smallest_share + bool(uneven)) / args.micro_batch_size)
    if smallest_share < pieces:
        raise ValueError(
            f"--batch-size={args.batch_size} and --micro-batch-size={args.micro_batch_size} make {pieces} pieces, but "
            f"some of {world} ranks have {smallest_share} sequences: run fewer ranks, or as many as divide the batch"
        )
    return pieces


def share_of_loss(model: nn.Module, tokens: torch.Tensor, args: argparse.Namespace) -> torch.Tensor:
    """What these sequences add to the mean loss of the whole batch, times the ranks, over which gradients are averaged.

    A mean over the rank's own sequences would give more weight to those of a rank that has fewer.
    """
    logits = model(tokens[:, :-1])
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten(), reduction="sum")
    return loss * dist.get_world_size() / (args.batch_size * LENGTH)


class Termination:
    """What SIGTERM asks for: a checkpoint at the end of the step, and exit code 143.

    A rank that waits for a dead peer comes to no end of a step, and waits in C++, where Python runs no signal handler:
    it would keep its pod until torchrun (30 s) or the kubelet kills it, while all GPUs of the job stand idle. So a
    thread hears of the signal through a pipe, and ends the process `hang_seconds` later.
    """

    def __init__(self, hang_seconds: float) -> None:
        self.asked = threading.Event()
        self.saving = threading.Lock()
        """Held while a checkpoint is written: that is no hang, and only the grace of the pod ends it."""
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        signal.signal(signal.SIGTERM, lambda *_: None)  # Python writes to the pipe only for signals that it handles
        signal.set_wakeup_fd(writer)
        threading.Thread(target=self._wait, args=(reader, hang_seconds), daemon=True).start()

    def _wait(self, reader: int, hang_seconds: float) -> None:
        while os.read(reader, 1) != bytes([signal.SIGTERM]):
            pass
        self.asked.set()
        time.sleep(hang_seconds)
        with self.saving:
            os._exit(128 + signal.SIGTERM)


class Log:
    """JSON lines of rank 0, on stdout and in the file, each written at once: a kill takes no line back."""

    def __init__(self, path: Path | None) -> None:
        self.speaks = dist.get_rank() == 0
        self.file = path.open("a", encoding="utf-8") if path and self.speaks else None

    def say(self, **fields: object) -> None:
        if not self.speaks:
            return
        for file in filter(None, (sys.stdout, self.file)):
            file.write(json.dumps(fields) + "\n")
            file.flush()


class Checkpoints:
    """Files `step-00000100.pt`, each whole or not there at all; the newest two are kept. All of it is rank 0's work."""

    def __init__(self, folder: Path, log: Log) -> None:
        self.folder, self.log = folder, log
        folder.mkdir(parents=True, exist_ok=True)
        for left in folder.glob("*.partial"):  # by a kill amid a write
            left.unlink(missing_ok=True)

    def write(self, step: int, state: dict[str, Any]) -> None:
        """A kill, or the power, may go at any moment: the file has its name only when all of it is on the disk.

        The partial file's name is used once. A node that was cut off may still write under its own, and meets no one.
        """
        partial = self.folder / f"{uuid.uuid4().hex}.partial"
        with partial.open("wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(self.folder / f"step-{step:08d}.pt")
        sync_folder(self.folder)
        older = [path for path in self._paths() if path.name < f"step-{step:08d}.pt"]
        for path in older[:-1]:
            path.unlink(missing_ok=True)
        self.log.say(event="saved", step=step)

    def newest(self) -> dict[str, Any] | None:
        """The state of the newest one that can be read. None: there is none, and training begins at step 0."""
        paths = self._paths()
        for path in reversed(paths):
            try:
                state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
            except (RuntimeError, OSError, EOFError, pickle.UnpicklingError) as error:
                self.log.say(event="skipped", checkpoint=str(path), error=reason_of(error))
            else:
                return state
        if paths:  # beginning again would overwrite, one after the other, what a person may still save
            raise RuntimeError(f"no checkpoint in {self.folder} can be read; move them away to begin at step 0")
        return None

    def _paths(self) -> list[Path]:
        return sorted(self.folder.glob("step-*.pt"))


def reason_of(error: BaseException) -> str:
    """One line: some errors have many, and some have none."""
    return f"{type(error).__name__}: {error}".partition("\n")[0]


def sync_folder(folder: Path) -> None:
    """A new name in a folder survives the loss of power only once the folder itself is on the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def join(args: argparse.Namespace) -> torch.device:
    """Meets the other ranks, and signals the readiness probe, if there is one, that all have met."""
    local_rank = int(os.environ["LOCAL_RANK"])
    signals = args.joined_file is not None and local_rank == 0
    if signals:
        args.joined_file.unlink(missing_ok=True)  # of the round before, if torchrun restarted its ranks in place
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda", local_rank) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    arrived_at = time.time()
    dist.init_process_group("cpu:gloo,cuda:nccl" if on_gpu else "gloo", timeout=timedelta(seconds=args.timeout_seconds))
    joined_at = time.time()
    waited_seconds = round(joined_at - arrived_at, 3)
    line = {"event": "joined", "rank": dist.get_rank(), "waitedSeconds": waited_seconds, "at": round(joined_at, 3)}
    print(json.dumps(line), flush=True)
    dist.barrier(device_ids=[local_rank] if on_gpu else None)
    if signals:
        args.joined_file.touch()
    return device


def settings_of(args: argparse.Namespace) -> dict[str, Any]:
    """What decides on the loss curve: with other values a checkpoint is of another training."""
    names = ("seed", "batch_size", "learning_rate", "dropout")
    return {name: getattr(args, name) for name in names}


def check_settings(written: dict[str, Any], args: argparse.Namespace) -> None:
    if written != settings_of(args):
        raise ValueError(
            f"the checkpoints in {args.checkpoint_dir} were written with {written}, and this training has "
            f"{settings_of(args)}: name another folder, or the same settings"
        )


def resume(
    checkpoints: Checkpoints | None,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    scheduler: torch.optim.lr_scheduler.LRScheduler,
    args: argparse.Namespace,
) -> int:
    """How many steps are done. Rank 0 reads, and the others have it from there, so that all go on from the same."""
    box = [checkpoints.newest() if checkpoints else None]
    dist.broadcast_object_list(box, src=0, device=torch.device("cpu"))
    state = box[0]
    if state is None:
        return 0
    check_settings(state["settings"], args)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    scheduler.load_state_dict(state["scheduler"])
    return int(state["step"])


def train(args: argparse.Namespace, device: torch.device, termination: Termination) -> bool:
    """To the last step, or until a rank is asked to end. True: all steps are done."""
    rank, world = dist.get_rank(), dist.get_world_size()
    pieces = pieces_of(args, world)
    log = Log(args.loss_log)
    checkpoints = Checkpoints(args.checkpoint_dir, log) if rank == 0 else None
    torch.manual_seed(args.seed)
    plain = Model(args.dropout).to(device)
    model = DistributedDataParallel(plain, device_ids=[device.index] if device.type == "cuda" else None)
    optimizer = torch.optim.AdamW(plain.parameters(), lr=args.learning_rate)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, warm_up_and_decay)
    done = resume(checkpoints, plain, optimizer, scheduler, args)
    log.say(event="resumed" if done else "began", step=done, ranks=world, device=device.type)

    for step, (epoch, batch) in zip(range(done + 1, args.steps + 1), batches(done, args), strict=False):
        # Dropout follows from seed, step and rank, so that no state of a generator has to be stored.
        torch.manual_seed(args.seed + step * world + rank)
        loss = torch.zeros((), device=device)
        for at, piece in enumerate(batch.to(device).tensor_split(pieces), start=1):
            with nullcontext() if at == pieces else model.no_sync():  # the ranks exchange gradients once
                part = share_of_loss(model, piece, args)
                part.backward()
            loss += part.detach()
        optimizer.step()
        optimizer.zero_grad()
        learning_rate = scheduler.get_last_lr()[0]
        scheduler.step()

        # The pod of one rank is drained: only together can they end after the same step.
        shared = torch.stack([loss, torch.tensor(float(termination.asked.is_set()), device=device)])
        dist.all_reduce(shared)
        mean_loss, stop = shared[0].item() / world, bool(shared[1])
        log.say(step=step, epoch=epoch, loss=mean_loss, learning_rate=learning_rate)
        if stop or step % args.checkpoint_every == 0 or step == args.steps:
            with termination.saving:
                if checkpoints:
                    state = {"step": step, "settings": settings_of(args), "model": plain.state_dict()}
                    state |= {"optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict()}
                    checkpoints.write(step, state)
                dist.barrier()  # a rank that ended now would have torchrun end the one that writes
        if stop:
            log.say(event="stopped", step=step)
            return step == args.steps
    return True


@record  # an exception goes to torchrun's error file, and from there to the end of the pod's log
def main() -> None:
    args = arguments()
    termination = Termination(args.hang_seconds)
    finished = train(args, join(args), termination)
    # Only here: after an exception it might wait for peers that are gone, and a process that ends closes all anyway.
    dist.destroy_process_group()
    sys.stdout.flush()
    # Threads of gloo go on after that. One that still needs the interpreter while it shuts down aborts the process
    # (pytorch/pytorch#190489), and a finished training counts as failed. So the interpreter does not shut down.
    # Never 0 before the last step: Kubernetes would take the training for complete.
    os._exit(0 if finished else 128 + signal.SIGTERM)


if __name__ == "__main__":
    main()
