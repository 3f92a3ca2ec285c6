// exp(x) to about one unit in the last place, by the polynomial of Cephes' expf (S. Moshier, netlib.org/cephes):
// x = n ln 2 + r with |r| <= ln 2 / 2. Zero where the result would be subnormal; saturates at 2^127.5; NaN stays NaN.
// The set defines minimum, round_to_integer, times_power_of_two(v, n) and zero_below(v, x, limit): v where x >= limit.
Vec exponential(Vec x) {
  constexpr float lowest = -87.336544f, highest = 88.37f;
  const Vec clamped = minimum(broadcast(highest), maximum(broadcast(lowest), x));
  const Vec n = round_to_integer(multiply(clamped, broadcast(1.44269504f)));
  // ln 2 in two parts; the first has so few bits that its product with n is exact.
  const Vec r = fma(n, broadcast(2.12194440e-4f), fma(n, broadcast(-0.693359375f), clamped));
  Vec p = broadcast(1.9875691500e-4f);
  p = fma(p, r, broadcast(1.3981999507e-3f));
  p = fma(p, r, broadcast(8.3334519073e-3f));
  p = fma(p, r, broadcast(4.1665795894e-2f));
  p = fma(p, r, broadcast(1.6666665459e-1f));
  p = fma(p, r, broadcast(5.0000001201e-1f));
  p = add(fma(p, multiply(r, r), r), broadcast(1.0f));
  return zero_below(times_power_of_two(p, n), x, lowest);
}
