/** The hub's page: the sentence, the figures, who waits; below, the servers, the use of them, and what rests. */
import { useState } from 'react';

import { useMoment, useUi } from '../components/context';
import { Gpus, IArrived } from '../components/gpus';
import { Strips } from '../components/overview';
import { Rows } from '../components/row';
import { Servers } from '../components/servers';
import { Days, Usage } from '../components/usage';
import { timeOfDay } from '../format';
import { inOrder, totals } from '../order';
import { IScope } from '../readings';
import { IHistory } from '../tokens';
import { Figures, headline, tenth } from './figures';
import { Box } from './parts';
import { Queue, Resting } from './tables';

interface IPageProps {
  /** Of the time that was chosen; null: not yet told. */
  history: IHistory | null;
  days: Days;
  onDays(days: Days): void;
  /** Whose series is drawn; null: everybody's. */
  of: string | null;
  onUser(user: string | null): void;
  /** Of the GPUs that were chosen; null: not yet told. */
  arrived: IArrived | null;
  scope: IScope;
  onScope(scope: IScope): void;
}

export function Page(props: IPageProps): JSX.Element {
  const { trans, snapshot } = useUi();
  const { status } = snapshot;
  return (
    <>
      <Bar />
      <main className="jp-GPUShare-hubMain">
        <h1>
          <span role="status">
            {status ? headline(status, trans) : trans.__('Asking the GPU service…')}
          </span>
        </h1>
        <Strips />
        {status && <Known {...props} />}
      </main>
    </>
  );
}

function Bar(): JSX.Element {
  const { trans, snapshot } = useUi();
  const { status } = snapshot;
  return (
    <header className="jp-GPUShare-hubBar">
      <a href="../../hub/home">JupyterHub</a>
      <b>{trans.__('GPU share')}</b>
      {status?.simulated && (
        <span className="jp-GPUShare-chip jp-GPUShare-simulated" data-simulated>
          {trans.__('simulated')}
        </span>
      )}
      <span className="jp-GPUShare-who">
        {status?.admin && <span data-admin>{trans.__('admin view')}</span>}
        <b>{status?.user}</b>
      </span>
    </header>
  );
}

function Known(props: IPageProps): JSX.Element {
  const { history, days, onDays, of, onUser, arrived, scope, onScope } = props;
  const { trans, snapshot } = useUi();
  const { status } = useMoment();
  const { devices, free, silent } = totals(status);
  const asOf =
    snapshot.kind === 'gone' && snapshot.at !== null
      ? trans.__('as of %1', timeOfDay(snapshot.at))
      : null;
  const summary = [
    trans._n('%1 server', '%1 servers', Object.keys(status.servers).length),
    trans.__('%1 of %2 free', tenth(free), devices),
    silent > 0 ? trans.__('%1 silent', silent) : ''
  ];
  return (
    <>
      <Figures history={history} />
      <Queue />
      <div className="jp-GPUShare-columns">
        <div>
          {!status.admin && <Notebooks />}
          <Box
            title={trans.__('Servers')}
            name="servers"
            aside={asOf ?? summary.filter(Boolean).join(' · ')}
          >
            <div className="jp-GPUShare-inside">
              {devices > 0 ? (
                <Servers />
              ) : (
                <p className="jp-GPUShare-note">{trans.__('No GPU server has reported yet.')}</p>
              )}
            </div>
          </Box>
          {status.admin && <Notebooks />}
          {devices > 0 && (
            <Box title={trans.__('The last hour')} name="gpus">
              <div className="jp-GPUShare-why jp-GPUShare-inBox">
                <Gpus arrived={arrived} scope={scope} onScope={onScope} within />
              </div>
            </Box>
          )}
        </div>
        <div>
          {status.admin && <Resting />}
          <Box title={trans.__('Use')} name="usage">
            <div className="jp-GPUShare-why jp-GPUShare-inBox">
              <Usage history={history} days={days} onDays={onDays} of={of} onUser={onUser} within />
            </div>
          </Box>
        </div>
      </div>
    </>
  );
}

/** One's own; with the admin scope everybody's, found by a name. */
function Notebooks(): JSX.Element {
  const { trans } = useUi();
  const moment = useMoment();
  const { admin } = moment.status;
  const [query, setQuery] = useState('');
  const words = query.trim().toLowerCase();
  const all = [...inOrder(moment, true), ...(admin ? inOrder(moment, false) : [])];
  const found = all.filter(
    ({ label, user }) => !words || `${label} ${user}`.toLowerCase().includes(words)
  );
  const title = admin ? trans.__('Notebooks') : trans.__('My notebooks');
  return (
    <Box
      title={title}
      name="notebooks"
      aside={admin ? trans._n('%1 notebook', '%1 notebooks', all.length) : undefined}
    >
      {admin && all.length > 8 && (
        <label className="jp-GPUShare-search">
          <input
            type="search"
            aria-label={trans.__('Search notebooks and users')}
            placeholder={trans.__('Notebook or user …')}
            value={query}
            onChange={event => setQuery(event.target.value)}
          />
        </label>
      )}
      <div className="jp-GPUShare-inside" data-scrolls>
        {found.length > 0 ? (
          <Rows sessions={found} label={title} />
        ) : (
          <p className="jp-GPUShare-note">
            {words ? trans.__('No notebook matches.') : trans.__('No notebook is running.')}
          </p>
        )}
      </div>
    </Box>
  );
}
