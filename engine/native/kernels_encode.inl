// Quantization of weights at load: symmetric codes, one f16 scale for each group of 64.
//
// The loops over a group have no branch and a constant length, so that the compiler makes vector code of them for the
// set's instructions, with the same bits in every set: a trunk of 1.2 G weights passes through here while it is read.

// Codes lie from middle - divisor to middle + divisor.
struct CodeRange {
  int bits;
  float middle, divisor;
};

constexpr CodeRange code_range(Storage storage) {
  switch (storage) {
    case Storage::q8: return {8, 128.0f, 127.0f};
    case Storage::q4: return {4, 7.5f, 7.5f};
    default: return {2, 1.5f, 1.5f};
  }
}

// Magnitudes are ordered as their bits are. A NaN is the largest: it makes the scale, and so the whole group, NaN.
float scale_magnitude(const float* x) {
  std::int32_t largest = 0;
  for (int i = 0; i < group_size; i++) {
    const std::int32_t magnitude = __builtin_bit_cast(std::int32_t, x[i]) & 0x7fffffff;
    largest = magnitude > largest ? magnitude : largest;
  }
  return __builtin_bit_cast(float, largest);
}

// Codes one a byte; returns the scale.
std::uint16_t encode(const CodeRange& range, const float* x, std::uint8_t* codes) {
  constexpr float rounder = 0x1.8p23f;  // adding it rounds to nearest even and leaves the integer in the low bits
  const float lowest = range.middle - range.divisor, highest = range.middle + range.divisor;
  const float magnitude = scale_magnitude(x);
  const std::uint16_t scale = float_to_half(magnitude < 65504.0f || magnitude != magnitude ? magnitude : 65504.0f);
  // The codes fit the scale as it is stored; a scale that underflowed to zero makes every weight zero.
  const float rounded_scale = half_to_float(scale);
  const float steps = rounded_scale > 0.0f ? range.divisor / rounded_scale : 0.0f;
  for (int i = 0; i < group_size; i++) {
    float code = x[i] * steps + range.middle;
    code = code > lowest ? code : lowest;
    code = code < highest ? code : highest;
    codes[i] = static_cast<std::uint8_t>(__builtin_bit_cast(std::uint32_t, code + rounder));
  }
  return scale;
}

template <int codes_per_byte>
void pack(const std::uint8_t* codes, std::uint8_t* bytes) {
  for (int i = 0; i < group_size / codes_per_byte; i++) {
    std::uint8_t byte = 0;
    for (int j = 0; j < codes_per_byte; j++) byte |= std::uint8_t(codes[i * codes_per_byte + j] << (j * 8 / codes_per_byte));
    bytes[i] = byte;
  }
}

template <Storage storage>
void quantize(const float* x, int n, std::uint8_t* codes, std::uint16_t* scales) {
  constexpr CodeRange range = code_range(storage);
  constexpr int codes_per_byte = 8 / range.bits;
  for (int start = 0; start < n; start += group_size) {
    const int count = n - start < group_size ? n - start : group_size;
    float values[group_size] = {};
    std::uint8_t wide[group_size], packed[group_size / codes_per_byte];
    __builtin_memcpy(values, x + start, std::size_t(count) * sizeof(float));
    scales[start / group_size] = encode(range, values, wide);
    for (int i = count; i < group_size; i++) wide[i] = 0;
    pack<codes_per_byte>(wide, packed);
    __builtin_memcpy(codes + start / codes_per_byte, packed, std::size_t((count + codes_per_byte - 1) / codes_per_byte));
  }
}

void quantize_row(Storage storage, const float* x, int n, std::uint8_t* codes, std::uint16_t* scales) {
  switch (storage) {
    case Storage::q8: return quantize<Storage::q8>(x, n, codes, scales);
    case Storage::q4: return quantize<Storage::q4>(x, n, codes, scales);
    default: return quantize<Storage::q2>(x, n, codes, scales);
  }
}
