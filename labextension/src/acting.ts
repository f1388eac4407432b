/** Carries out what a person asks for a session. Each rejects with what the server said. */
import { INotebookTracker } from '@jupyterlab/notebook';
import { KernelAPI } from '@jupyterlab/services';
import { TranslationBundle } from '@jupyterlab/translation';

import { Action } from './actions';
import { IApi } from './api';
import { Depth } from './depthview';
import { askForMore, askWhere, confirm, confirmLoss, tell } from './dialogs';
import { kernelOf } from './focus';
import { Refusal } from './request';
import { IDemand, IGPUShareModel, ISession, IStatus } from './tokens';

const KEEP_S = 3600;

interface IActingOptions {
  api: IApi;
  model: IGPUShareModel;
  tracker: INotebookTracker | null;
  trans: TranslationBundle;
  look(session: ISession, depth: Depth): void;
}

export function createAct(options: IActingOptions): (action: Action, id: string) => Promise<void> {
  const { api, model, tracker, trans, look } = options;

  const restart = async (session: ISession): Promise<void> => {
    const sure = await confirmLoss(
      trans.__('Restart the kernel?'),
      trans.__('The variables of %1 are lost. It gets its GPU when it runs again.', session.label),
      trans.__('Restart')
    );
    if (sure) {
      const panel = tracker?.find(candidate => kernelOf(candidate) === session.id);
      await (panel?.sessionContext.session?.kernel?.restart() ??
        KernelAPI.restartKernel(session.id, api.settings));
    }
  };

  const ask = async (session: ISession, status: IStatus): Promise<void> => {
    const demand = await askForMore(session, status, api, trans);
    if (demand) {
      await request(session, demand);
    }
  };

  /** What cannot be had without a restart is reserved first, if the person wants it so. */
  const request = async (session: ISession, demand: IDemand): Promise<void> => {
    try {
      await api.request(session.id, demand);
    } catch (error) {
      if (!(error instanceof Refusal) || error.reason !== 'restart_required') {
        throw error;
      }
      const sure = await confirm(
        trans.__('Needs a kernel restart'),
        trans.__(
          '%1 The GPUs are reserved first; you restart when they are ready.',
          error.message.replace(/^Needs a kernel restart\. /, '')
        ),
        trans.__('Reserve')
      );
      if (sure) {
        await api.request(session.id, demand, 'restart');
      }
    }
  };

  return async (action, id) => {
    const { status } = model.snapshot;
    const session = status?.sessions[id];
    if (!status || (!session && action !== 'stop')) {
      throw new Error(trans.__('This notebook has no place in the GPU service.'));
    }
    if (!session) {
      return api.act(id, 'stop'); // what an ended notebook left on a device
    }
    switch (action) {
      case 'keep':
        return api.pin(id, KEEP_S);
      case 'unkeep':
        return api.act(id, 'unpin');
      case 'let-go':
        return api.act(id, 'release');
      case 'park':
        return api.act(id, 'park');
      case 'bring-back':
        return api.act(id, 'resume');
      case 'ask-for-more':
        return ask(session, status);
      case 'move': {
        const device = await askWhere(session, status, trans);
        return device === null ? undefined : api.move(id, device);
      }
      case 'why':
        return look(session, 'why');
      case 'timeline':
        return look(session, 'timeline');
      case 'restart':
        return restart(session);
      case 'interrupt':
        return KernelAPI.interruptKernel(id, api.settings);
      case 'what-is-lost':
        await tell(
          trans.__('What is lost?'),
          trans.__(
            'What lay in the GPU’s memory: tensors and models on it. What the kernel holds in RAM lives on.'
          ),
          trans
        );
        return;
      case 'stop': {
        const sure = await confirmLoss(
          trans.__('Stop the kernel?'),
          trans.__('The variables of %1 are lost.', session.label),
          trans.__('Stop')
        );
        return sure ? api.act(id, 'stop') : undefined;
      }
    }
  };
}
