// Bytes of images as numbers for convolutions: scaled, with each pixel's channels beside each other.

#define PIXELS 256 // of a block, whose bytes and numbers stay in the first cache

// A number as bfloat16: its upper half, rounded to the nearest, halfway cases to the even one.
INLINE uint16_t half_of(float x) {
  uint32_t bits;
  memcpy(&bits, &x, 4);
  return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

#define SCALED(name, number, converted)                                                                                \
  INLINE void name##_block(const uint8_t *from, int64_t channels, int64_t pixels, int64_t block, float scale,          \
                           number *to) {                                                                               \
    for (int64_t p = 0; p < block; p++)                                                                                \
      for (int64_t c = 0; c < channels; c++) to[p * channels + c] = converted((float)from[c * pixels + p] * scale);    \
  }                                                                                                                    \
  void name(const uint8_t *from, int64_t images, int64_t channels, int64_t pixels, float scale, number *to) {          \
    for (int64_t image = 0; image < images; image++)                                                                   \
      for (int64_t p = 0; p < pixels; p += PIXELS) {                                                                   \
        const uint8_t *first = from + image * channels * pixels + p;                                                   \
        number *place = to + (image * pixels + p) * channels;                                                          \
        int64_t block = pixels - p < PIXELS ? pixels - p : PIXELS;                                                     \
        switch (channels) { /* the compiler's own loop for each of the usual numbers */                                \
        case 1: name##_block(first, 1, pixels, block, scale, place); break;                                            \
        case 3: name##_block(first, 3, pixels, block, scale, place); break;                                            \
        case 4: name##_block(first, 4, pixels, block, scale, place); break;                                            \
        default: name##_block(first, channels, pixels, block, scale, place);                                           \
        }                                                                                                              \
      }                                                                                                                \
  }

// from [images][channels][pixels] -> to [images][pixels][channels], each byte times `scale`.
SCALED(scale_images, float, )
SCALED(scale_images_to_halves, uint16_t, half_of)
