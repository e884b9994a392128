"""Trains a small language model with fully sharded data parallelism (FSDP2) so that a failure costs little.

    torchrun --nproc-per-node=2 fsdp.py --checkpoint-dir=checkpoints

The training of ddp.py, for models that do not fit on one GPU. No rank has the whole state, so each writes its own part,
all at once, and rank 0 alone decides that a checkpoint is there: it gives the folder its name when all parts are on the
disk. (The other way, all of it gathered on rank 0, needs the host memory of the whole model and optimizer there, and
writes through one network card.) The parts are read by any number of ranks. docs/training.md says which part is there
for what, and docs/elastic-training.md what another number of ranks asks for.
"""

import argparse
import itertools
import json
import math
import os
import shutil
import signal
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.elastic.multiprocessing.errors import record
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, Dataset

Value = TypeVar("Value")
VOCABULARY, LENGTH, WIDTH, LAYERS, SEQUENCES = 32, 32, 64, 2, 4096


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="A training that recovers, with FSDP2.")
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
    """Folders `step-00000100`, each whole or not there at all; the newest two are kept. All ranks call each method."""

    def __init__(self, folder: Path, log: Log) -> None:
        self.folder, self.log = folder, log
        if dist.get_rank() == 0:
            folder.mkdir(parents=True, exist_ok=True)
            for left in folder.glob("*.partial"):  # by a kill amid a write
                shutil.rmtree(left, ignore_errors=True)

    def write(self, step: int, state: dict[str, Any]) -> None:
        """A kill, or the power, may go at any moment: the folder has its name only when all parts are on the disk.

        The partial folder's name is used once. A node that was cut off may still write under its own, and meets no one.
        """
        partial = self.folder / said_by_rank_0(f"{uuid.uuid4().hex}.partial")
        dcp.save(state, checkpoint_id=partial)  # returns when every rank has written and synced its part
        if dist.get_rank() != 0:
            return
        sync_folder(partial)
        final = self.folder / f"step-{step:08d}"
        shutil.rmtree(final, ignore_errors=True)  # one that could not be read, or this one would not be written again
        partial.replace(final)
        sync_folder(self.folder)
        older = [path for path in self._paths() if path.name < final.name]
        for path in older[:-1]:
            shutil.rmtree(path, ignore_errors=True)
        self.log.say(event="saved", step=step)

    def newest(self, to_fill: Callable[[], dict[str, Any]]) -> dict[str, Any] | None:
        """A state, filled from the newest one that can be read. None: there is none, and training begins at step 0."""
        paths = said_by_rank_0(self._paths())
        for path in reversed(paths):
            state = to_fill()
            try:
                dcp.load(state, checkpoint_id=path)
            except CheckpointException as error:  # in all ranks, whichever could not read its part
                reason = next(iter(error.failures.values()))[0]
                self.log.say(event="skipped", checkpoint=str(path), error=reason_of(reason))
            else:
                return state
        if paths:  # beginning again would overwrite, one after the other, what a person may still save
            raise RuntimeError(f"no checkpoint in {self.folder} can be read; move them away to begin at step 0")
        return None

    def _paths(self) -> list[Path]:
        return sorted(self.folder.glob("step-*"))


def said_by_rank_0(value: Value) -> Value:
    """What rank 0 has said, in all ranks: folders of a network are not the same everywhere at once."""
    box = [value]
    dist.broadcast_object_list(box, src=0, device=torch.device("cpu"))
    return box[0]


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


def state_of(
    step: int,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    scheduler: torch.optim.lr_scheduler.LRScheduler,
    args: argparse.Namespace,
) -> dict[str, Any]:
    """This rank's part of it; of what all ranks have in common, one writes it.

    Before the first step it is only to be overwritten: it has the optimizer make its moments, by a step that counts
    (pytorch/pytorch#164929).
    """
    of_model, of_optimizer = get_state_dict(model, optimizer)
    state = {"step": step, "settings": settings_of(args), "scheduler": scheduler.state_dict()}
    return state | {"model": of_model, "optimizer": of_optimizer}


def resume(
    checkpoints: Checkpoints,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    scheduler: torch.optim.lr_scheduler.LRScheduler,
    args: argparse.Namespace,
) -> int:
    """How many steps are done. Each rank reads the part that it has now, no matter which rank wrote it."""
    state = checkpoints.newest(lambda: state_of(0, model, optimizer, scheduler, args))
    if state is None:
        return 0
    check_settings(state["settings"], args)
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    scheduler.load_state_dict(state["scheduler"])
    return int(state["step"])


def train(args: argparse.Namespace, device: torch.device, termination: Termination) -> bool:
    """To the last step, or until a rank is asked to end. True: all steps are done."""
    rank, world = dist.get_rank(), dist.get_world_size()
    pieces = pieces_of(args, world)
    log = Log(args.loss_log)
    checkpoints = Checkpoints(args.checkpoint_dir, log)
    torch.manual_seed(args.seed)
    model = Model(args.dropout).to(device)
    mesh = init_device_mesh(device.type, (world,))
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, warm_up_and_decay)
    done = resume(checkpoints, model, optimizer, scheduler, args)
    log.say(event="resumed" if done else "began", step=done, ranks=world, device=device.type)

    for step, (epoch, batch) in zip(range(done + 1, args.steps + 1), batches(done, args), strict=False):
        # Dropout follows from seed, step and rank, so that no state of a generator has to be stored.
        torch.manual_seed(args.seed + step * world + rank)
        loss = torch.zeros((), device=device)
        # The ranks exchange gradients after each piece: to keep whole ones until the last, FSDP has no memory.
        for piece in batch.to(device).tensor_split(pieces):
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
                checkpoints.write(step, state_of(step, model, optimizer, scheduler, args))
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
