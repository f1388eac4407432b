/** GPU-hours: mine, and with the admin scope those of users and groups. */
import { charged, percent } from '../format';
import { ranked, usageCsv } from '../history';
import { saveText } from '../save';
import { IHistory } from '../tokens';
import { useStatus, useUi } from './context';
import { vars } from './marks';
import { Series } from './timeline';

export const DAYS = [1, 7, 30] as const;
export type Days = (typeof DAYS)[number];

interface IUsageProps {
  history: IHistory | null;
  days: Days;
  onDays(days: Days): void;
  /** Whose series is drawn, where that can be chosen; null: that of all who are shown. */
  of?: string | null;
  onUser?(user: string | null): void;
  /** Below a heading of the page's, so without one of its own. */
  within?: boolean;
}

export function Usage(props: IUsageProps): JSX.Element {
  const { history, days, onDays, of = null, onUser, within = false } = props;
  const { trans } = useUi();
  const status = useStatus();
  const words: Record<Days, string> = {
    1: trans.__('Day'),
    7: trans.__('Week'),
    30: trans.__('Month')
  };
  const [Total, Part] = within ? (['p', 'h3'] as const) : (['h1', 'h2'] as const);
  const total = history ? Object.values(history.by_user).reduce((sum, one) => sum + one, 0) : null;
  return (
    <>
      <div className="jp-GPUShare-filters" role="group" aria-label={trans.__('How far back')}>
        {DAYS.map(choice => (
          <button
            key={choice}
            type="button"
            className="jp-GPUShare-filter"
            aria-pressed={choice === days}
            onClick={() => onDays(choice)}
          >
            {words[choice]}
          </button>
        ))}
      </div>
      <Total className="jp-GPUShare-total">
        {total === null ? trans.__('Asking the GPU service…') : charged(total)}
      </Total>
      <p className="jp-GPUShare-text">
        {status.admin
          ? trans.__('Charged to everybody (admin view): share times time.')
          : trans.__('Charged to you: share times time.')}
      </p>
      <Part>
        {trans.__('Share and use')}
        {of !== null && (
          <>
            {' · '}
            {of}{' '}
            <button type="button" className="jp-GPUShare-link" onClick={() => onUser?.(null)}>
              {trans.__('show all')}
            </button>
          </>
        )}
      </Part>
      <Series history={history} name="usage" />
      {history && (
        <>
          {status.admin && (
            <>
              <Sums
                title={trans.__('By user')}
                sums={ranked(history.by_user)}
                part={Part}
                of={history.total_gpu_s}
                fair={history.fair}
                onName={onUser}
              />
              <Sums title={trans.__('By group')} sums={ranked(history.by_group)} part={Part} />
            </>
          )}
          <Sums title={trans.__('By day')} sums={Object.entries(history.by_day)} part={Part} />
          <div className="jp-GPUShare-actions">
            <button
              type="button"
              className="jp-GPUShare-button"
              onClick={() => saveText('gpushare-usage-sums.csv', usageCsv(history))}
            >
              {trans.__('Save the sums as CSV')}
            </button>
          </div>
        </>
      )}
    </>
  );
}

const MOST = 50;

interface ISumsProps {
  title: string;
  sums: [string, number][];
  part: 'h2' | 'h3';
  /** What a whole bar is; without it, the largest. */
  of?: number;
  /** Of each name, the part that weights give it. */
  fair?: Record<string, number>;
  onName?(name: string): void;
}

function Sums({ title, sums, part: Part, of, fair, onName }: ISumsProps): JSX.Element | null {
  const { trans } = useUi();
  const most = of || Math.max(1, ...sums.map(([, sum]) => sum));
  return sums.length === 0 ? null : (
    <>
      <Part>
        {title}
        {fair && (
          <span className="jp-GPUShare-aside">
            {' '}
            {trans.__('of all use')} · <i className="jp-GPUShare-fair" aria-hidden="true" />{' '}
            {trans.__('fair share')}
          </span>
        )}
      </Part>
      <table className="jp-GPUShare-sums">
        <tbody>
          {sums.slice(0, MOST).map(([name, sum]) => {
            const due = fair?.[name];
            return (
              <tr key={name}>
                <th scope="row">
                  {onName ? (
                    <button
                      type="button"
                      className="jp-GPUShare-link"
                      title={trans.__('Show the use of %1 over time', name)}
                      onClick={() => onName(name)}
                    >
                      {name}
                    </button>
                  ) : (
                    name
                  )}
                </th>
                <td
                  title={
                    fair &&
                    trans.__(
                      '%1 of all use, fair share %2',
                      percent(sum / most),
                      percent(due ?? null)
                    )
                  }
                >
                  <span
                    className="jp-GPUShare-sum"
                    aria-hidden="true"
                    data-fair={due === undefined ? undefined : true}
                    style={vars({ now: sum / most, fair: due ?? 0 })}
                  />
                </td>
                <td className="jp-GPUShare-value">{charged(sum)}</td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </>
  );
}
