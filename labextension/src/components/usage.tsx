/** GPU-hours: mine, and with the admin scope those of users and groups. */
import { charged } from '../format';
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
}

export function Usage({ history, days, onDays }: IUsageProps): JSX.Element {
  const { trans } = useUi();
  const status = useStatus();
  const words: Record<Days, string> = {
    1: trans.__('Day'),
    7: trans.__('Week'),
    30: trans.__('Month')
  };
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
      <h1>{total === null ? trans.__('Asking the GPU service…') : charged(total)}</h1>
      <p className="jp-GPUShare-text">
        {status.admin
          ? trans.__('Charged to everybody (admin view): share times time.')
          : trans.__('Charged to you: share times time.')}
      </p>
      <h2>{trans.__('Share and use')}</h2>
      <Series history={history} name="usage" />
      {history && (
        <>
          <Sums title={trans.__('By day')} sums={Object.entries(history.by_day)} />
          {status.admin && (
            <>
              <Sums title={trans.__('By user')} sums={ranked(history.by_user)} />
              <Sums title={trans.__('By group')} sums={ranked(history.by_group)} />
            </>
          )}
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

function Sums({ title, sums }: { title: string; sums: [string, number][] }): JSX.Element | null {
  const most = Math.max(1, ...sums.map(([, sum]) => sum));
  return sums.length === 0 ? null : (
    <>
      <h2>{title}</h2>
      <table className="jp-GPUShare-sums">
        <tbody>
          {sums.slice(0, MOST).map(([name, sum]) => (
            <tr key={name}>
              <th scope="row">{name}</th>
              <td aria-hidden="true">
                <span className="jp-GPUShare-sum" style={vars({ now: sum / most })} />
              </td>
              <td className="jp-GPUShare-value">{charged(sum)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </>
  );
}
