/** Who waits, and what is held by those who rest. */
import { ActionButton } from '../components/actions';
import { useMoment, useUi } from '../components/context';
import { Name } from '../components/marks';
import { about, devices as amount, exactSpan, span, UNREAD } from '../format';
import { lookOf } from '../states';
import { running, totalShare } from '../view';
import { Box, Table } from './parts';
import { asked, inLine, resting, whatHoldsIt, whyItWaits } from './pressure';

const MOST = 50;

/** Everybody's place in line with the admin scope, else one's own among the others'. */
export function Queue(): JSX.Element {
  const { trans } = useUi();
  const moment = useMoment();
  const { status } = moment;
  const sessions = inLine(status);
  const shown = sessions.slice(0, MOST);
  const total = status.queue.length;
  const aside =
    total === 0
      ? trans.__('nobody waits')
      : status.admin
        ? trans.__('in the order it will be served')
        : trans.__('%1 in line', total);
  const rows = shown.map((session): [string, React.ReactNode[]] => {
    const waited = running(session, 'waiting_s', moment);
    return [
      session.id,
      [
        String(session.queue_position),
        ...(status.admin ? [session.user] : []),
        <Name key="name" label={session.label} title={session.path ?? session.label} />,
        asked(session, trans),
        waited === null ? UNREAD : exactSpan(waited, trans),
        about(running(session, 'eta_s', moment), trans),
        whyItWaits(session, status, trans)
      ]
    ];
  });
  return (
    <Box title={trans.__('Queue')} name="queue" aside={aside}>
      {rows.length === 0 ? (
        <p className="jp-GPUShare-text">
          {total === 0
            ? trans.__('Everybody has what they asked for.')
            : trans.__('None of your notebooks waits.')}
        </p>
      ) : (
        <Table
          label={trans.__('Queue')}
          columns={[
            { name: trans.__('Place'), width: '48px' },
            ...(status.admin ? [{ name: trans.__('User'), width: '13%' }] : []),
            { name: trans.__('Notebook') },
            { name: trans.__('Asks for'), width: '17%' },
            { name: trans.__('Waiting'), width: '96px', number: true },
            { name: trans.__('Expected'), width: '138px', number: true },
            { name: trans.__('Why it waits'), width: '25%' }
          ]}
          rows={rows}
        />
      )}
      {sessions.length > MOST && (
        <p className="jp-GPUShare-text">{trans.__('and %1 more', sessions.length - MOST)}</p>
      )}
    </Box>
  );
}

const MOST_RESTING = 10;

/** What is wasted, the longest first, with what takes it back. */
export function Resting(): JSX.Element {
  const { trans } = useUi();
  const moment = useMoment();
  const sessions = resting(moment);
  const held = sessions.reduce((sum, session) => sum + totalShare(session), 0);
  return (
    <Box
      title={trans.__('Held idle the longest')}
      name="resting"
      aside={sessions.length > 0 && trans.__('%1 GPUs', amount(Math.round(10 * held) / 10))}
    >
      {sessions.length === 0 ? (
        <p className="jp-GPUShare-text">{trans.__('No GPU is held by a notebook that rests.')}</p>
      ) : (
        <Table
          label={trans.__('Held idle the longest')}
          columns={[
            { name: trans.__('Notebook') },
            { name: trans.__('User'), width: '17%' },
            { name: trans.__('GPUs'), width: '52px', number: true },
            { name: trans.__('Idle'), width: '66px', number: true },
            { name: trans.__('What holds it'), width: '25%' },
            { name: trans.__('Acts'), width: '74px', number: true, unseen: true }
          ]}
          rows={sessions.slice(0, MOST_RESTING).map(session => {
            const idle = running(session, 'idle_s', moment);
            return [
              session.id,
              [
                <Name key="name" label={session.label} title={session.path ?? session.label} />,
                session.user,
                amount(totalShare(session)),
                idle === null ? UNREAD : span(idle, trans),
                whatHoldsIt(session, moment, trans),
                <ActionButton
                  key="act"
                  action="park"
                  session={session}
                  look={lookOf(session, moment)}
                />
              ]
            ];
          })}
        />
      )}
    </Box>
  );
}
