/* Rounding to the nearest, which compiled code calls where a core has no instruction of it: beyond
   2^23 every f32 is whole, and up to there the sum with 2^23 is rounded to an even whole. */
__attribute__((weak, used)) float roundevenf(float x) {
  const float magnitude = __builtin_fabsf(x);
  if (!(magnitude < 0x1p23f)) return x;
  return __builtin_copysignf((magnitude + 0x1p23f) - 0x1p23f, x);
}
