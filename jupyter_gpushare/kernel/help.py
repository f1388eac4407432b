"""What ``%gpu?`` shows."""

from __future__ import annotations

from .words import __


def text() -> str:
    return __(
        """This notebook's GPU: see it, ask for more, keep it, give it back.

%gpu                     my share, my device, neighbours as a count, the line
%gpu why                 why this device
%gpu request 2           ask for 2 GPUs; 0.5 guarantees half of one, 0 asks for none
     --memory 20GiB      memory on each
     --exclusive         nobody else on it
     --model A100        only devices whose name contains this; any lifts that
     --server alpha      only devices of this server; any lifts that
     --restart           reserve what a running kernel cannot get; restart when it is ready
%gpu near /datasets/x    where its data lies (several paths, or session:<id>)
%gpu wait                wait until a GPU is there
%gpu pin 2h              keep it that long (1h when nothing is said); %gpu unpin ends that
%gpu park                move its GPU memory to host memory now; %gpu resume brings it back
%gpu release             give it back
%gpu history             share and use over time
%gpu pool 4              4 GPUs of one or several servers, all of them or none, as `pool`
     --engine dask       and Dask on them, as `client`; or torchrun: client("train.py") runs it on every rank
%gpu pool end            ends what runs there and gives them back

%%gpu                    hold a GPU for this cell only, then give it back
"""
    )
