// Uncertainty of posteriors over the parameter of a coin, in nats, in the closed forms of demur.predictions:
// digamma differences without cancellation (gamma.py), series and elementary sums (unit_interval.py).

const SERIES = [
  [1, 1 / 2], [2, -1 / 12], [4, 1 / 120], [6, -1 / 252], [8, 1 / 240], [10, -1 / 132], [12, 691 / 32760],
  [14, -1 / 12],
];
const LARGE = 10;

function logRatio(a, b) {
  return b > a ? Math.log(a + b) - Math.log(a) : Math.log1p(b / a);
}

// log((a + b) / a), psi(a + b + 1) - psi(a + 1), and the first minus the second.
function growth(a, b) {
  const small = a < LARGE, far = small ? a + LARGE : a, logFar = logRatio(far, b);
  let tail = 0, steps = 0;
  for (const [k, c] of SERIES) tail += c * far ** -k * -Math.expm1(-k * logFar);
  if (small) for (let k = 1; k <= LARGE; k++) steps += b / (a + k) / (a + k + b);
  const digamma = logFar - tail + steps, log = logRatio(a, b);
  return { log, digamma, excess: small ? log - digamma : tail };
}

// Expected entropy H, mutual information I, expected pairwise divergence K, and the expected value.
function ofBeta(a, b) {
  const whole = a + b, one = growth(a, b), zero = growth(b, a), p = a / whole, q = b / whole;
  return {
    mean: p,
    entropy: p * one.digamma + q * zero.digamma,
    information: p * one.excess + q * zero.excess,
    pairwise: 1 / whole,
  };
}

// E[(x - 1) log x] and E[x log x] for x uniform on low, high = 1 - t, 1 + t.
function interval(t, low, high) {
  let covariance = 0, information = 0;
  if (t < 0.3) {
    for (let k = 16; k > 0; k--) {
      covariance = t * t * (covariance + 1 / (4 * k * k - 1));
      information = t * t * (information + 1 / (2 * k * (4 * k * k - 1)));
    }
    return { covariance, information };
  }
  const logLow = low > 0 ? Math.log(low) : 0, logHigh = Math.log(high);
  const first = (high * logHigh - low * logLow) / (2 * t);
  const second = (high * high * logHigh - low * low * logLow) / (4 * t);
  return { covariance: second - first + 0.5, information: second - 0.5 };
}

function ofUniform(lo, hi) {
  const p = (lo + hi) / 2, q = (1 - hi + (1 - lo)) / 2, half = (hi - lo) / 2;
  const one = interval(half / p, lo / p, hi / p), zero = interval(half / q, (1 - hi) / q, (1 - lo) / q);
  const information = p * one.information + q * zero.information;
  return {
    mean: p,
    entropy: binaryEntropy(p, q) - information,
    information,
    pairwise: p * one.covariance + q * zero.covariance,
  };
}

function binaryEntropy(p, q) {
  const term = (x, rest) => (x > 0 ? -x * (x < 0.5 ? Math.log(x) : Math.log1p(-rest)) : 0);
  return term(p, q) + term(q, p);
}

// How a probability p stands off the mean m, with r = p / m - 1: the shares (1 + r) log(1 + r) - r of I and
// r log(1 + r) of K, without cancellation where r is small, and exact where p is far below m or 0.
function apart(p, m) {
  const r = (p - m) / m;
  if (p === 0) return [1, Infinity];
  if (Math.abs(r) > 0.05) return [(p / m) * Math.log(p / m) - r, r * Math.log(p / m)];
  let sum = 0;
  for (let n = 14; n >= 2; n--) sum = 1 / (n * (n - 1)) - r * sum;
  return [r * r * sum, r * Math.log1p(r)];
}

function ofDeltas(first, second, weight) {
  const weights = [weight, 1 - weight], points = [first, second], others = points.map((x) => 1 - x);
  const average = ([x, y]) => (weight < 0.5 ? y + weight * (x - y) : x + weights[1] * (y - x));
  let entropy = 0, information = 0, pairwise = 0;
  points.forEach((x, i) => { entropy += weights[i] * binaryEntropy(x, others[i]); });
  for (const values of [points, others]) {
    const m = average(values);
    values.forEach((p, i) => {
      if (weights[i] === 0 || m === 0) return;
      const [toInformation, toPairwise] = apart(p, m);
      information += weights[i] * m * toInformation;
      pairwise += weights[i] * m * toPairwise;
    });
  }
  return { mean: average(points), entropy, information, pairwise };
}

// Total, aleatoric and epistemic uncertainty by measure.
function decompose({ entropy, information, pairwise }) {
  const parts = (aleatoric, epistemic) => ({ total: aleatoric + epistemic, aleatoric, epistemic });
  return {
    average: parts(entropy, information),
    pairwise: parts(entropy, pairwise),
    reverse: parts(entropy + information, pairwise - information),
  };
}

// log Gamma(x), for the height of a density in the picture.
function logGamma(x) {
  let shift = 0;
  while (x < LARGE) { shift += Math.log(x); x += 1; }
  let sum = (x - 0.5) * Math.log(x) - x + 0.5 * Math.log(2 * Math.PI) - shift;
  for (const [k, c] of SERIES.slice(1)) sum -= (c / (k - 1)) * x ** (1 - k);
  return sum;
}

function betaDensity(a, b) {
  const norm = logGamma(a + b) - logGamma(a) - logGamma(b);
  // 0 log 0 = 0: at an end the density is 0, infinite, or, where its exponent is 0, in between.
  const term = (power, log) => (power === 0 ? 0 : power * log);
  return (x) => Math.exp(norm + term(a - 1, Math.log(x)) + term(b - 1, Math.log1p(-x)));
}
