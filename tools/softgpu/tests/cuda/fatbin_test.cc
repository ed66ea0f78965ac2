// The containers of nvcc, built here by hand.
#include "tools/softgpu/cuda/fatbin.h"

#include <gtest/gtest.h>

#include <cstring>

#ifdef SOFTGPU_HAVE_ZSTD
#include <zstd.h>
#endif

namespace softgpu::cuda {
namespace {

void Append(std::string* to, uint64_t value, int bytes) { to->append(reinterpret_cast<const char*>(&value), bytes); }

std::string Entry(int kind, uint32_t arch, const std::string& payload, uint64_t flags = 0, uint64_t raw = 0) {
  std::string padded = payload;
  padded.resize((payload.size() + 8) / 8 * 8);
  std::string entry;
  Append(&entry, kind, 2);
  Append(&entry, 0x101, 2);
  Append(&entry, 64, 4);
  Append(&entry, padded.size(), 8);
  Append(&entry, raw != 0 ? payload.size() : 0, 4);
  Append(&entry, 0, 4);
  Append(&entry, 0x90000, 4);
  Append(&entry, arch, 4);
  Append(&entry, 0, 8);
  Append(&entry, flags, 8);
  Append(&entry, 0, 8);
  Append(&entry, raw, 8);
  return entry + padded;
}

std::string Container(const std::string& entries) {
  std::string container;
  Append(&container, 0xba55ed50, 4);
  Append(&container, 1, 2);
  Append(&container, 16, 2);
  Append(&container, entries.size(), 8);
  return container + entries;
}

TEST(FatBinary, GivesTheNewestPtxThatFits) {
  const std::string container =
      Container(Entry(1, 75, ".version 75") + Entry(2, 90, "cubin") + Entry(1, 90, ".version 90"));
  EXPECT_EQ(ReadImage(container.data(), 90).image.text, ".version 90");
  EXPECT_EQ(ReadImage(container.data(), 100).image.text, ".version 90");
  EXPECT_EQ(ReadImage(container.data(), 80).image.text, ".version 75");
  const ImageResult none = ReadImage(container.data(), 70);
  EXPECT_EQ(none.error, ImageError::kNoPtx);
  EXPECT_NE(none.explanation.find("compute_75, sm_90, compute_90"), std::string::npos) << none.explanation;
}

TEST(FatBinary, AcceptsPtxAsText) {
  EXPECT_EQ(ReadImage("// c\n.version 9.0\n", 90).error, ImageError::kNone);
  EXPECT_EQ(ReadImage("nonsense", 90).error, ImageError::kInvalid);
  EXPECT_EQ(ReadImage("\177ELF", 90).error, ImageError::kNoPtx);
}

TEST(FatBinary, DamageIsAnError) {
  std::string container = Container(Entry(1, 75, ".version"));
  const uint64_t huge = uint64_t{1} << 60;
  std::memcpy(container.data() + 16 + 8, &huge, 8);
  EXPECT_EQ(ReadImage(container.data(), 90).error, ImageError::kInvalid);
}

TEST(FatBinary, UnpacksLz4) {
  // "abcd", then 12 bytes repeated from 4 bytes before, then "xyz12".
  const std::string packed = std::string("\x48") + "abcd" + std::string("\x04\x00", 2) + "\x50" + "xyz12";
  std::string text;
  ASSERT_TRUE(UnpackLz4(reinterpret_cast<const uint8_t*>(packed.data()), packed.size(), 21, &text));
  EXPECT_EQ(text, "abcdabcdabcdabcdxyz12");
  EXPECT_FALSE(UnpackLz4(reinterpret_cast<const uint8_t*>(packed.data()), packed.size(), 22, &text));
  for (size_t cut = 0; cut + 1 < packed.size(); ++cut)
    EXPECT_FALSE(UnpackLz4(reinterpret_cast<const uint8_t*>(packed.data()), cut, 21, &text)) << cut;
  const ImageResult result = ReadImage(Container(Entry(1, 75, packed, 0x2000, 21)).data(), 90);
  EXPECT_EQ(result.image.text, "abcdabcdabcdabcdxyz12");
}

#ifdef SOFTGPU_HAVE_ZSTD
TEST(FatBinary, UnpacksZstd) {
  const std::string text(1000, 'p');
  std::string packed(2000, '\0');
  packed.resize(ZSTD_compress(packed.data(), packed.size(), text.data(), text.size(), 3));
  EXPECT_EQ(ReadImage(Container(Entry(1, 75, packed, 0x8000, text.size())).data(), 90).image.text, text);
  packed[5] ^= 0x55;
  EXPECT_EQ(ReadImage(Container(Entry(1, 75, packed.substr(0, 8), 0x8000, text.size())).data(), 90).error,
            ImageError::kInvalid);
}
#endif

}  // namespace
}  // namespace softgpu::cuda
