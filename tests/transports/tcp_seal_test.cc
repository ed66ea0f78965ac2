// What AXCCL_ENCRYPT promises: nothing that was changed, repeated, moved or left out on the way is taken for what was
// sent, and what is hidden is not seen.
#include "transports/tcp/seal.h"

#include <gtest/gtest.h>
#include <sodium.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <tuple>
#include <vector>

#include "tests/harness/random.h"
#include "transports/tcp/gcrypt.h"

namespace axccl::tcp {
namespace {

using Record = std::vector<std::byte>;

class SealTest : public testing::TestWithParam<std::tuple<remote::Cipher, bool>> {
 protected:
  SealTest() {
    if (cipher() == remote::Cipher::kAesGcm && CipherOfProcess() != remote::Cipher::kAesGcm) return;
    ready_ = true;
    key_.fill(7);
  }
  void SetUp() override {
    if (!ready_) GTEST_SKIP() << "this processor has no instructions for AES";
  }
  static remote::Cipher cipher() { return std::get<0>(GetParam()); }
  static bool hidden() { return std::get<1>(GetParam()); }
  std::unique_ptr<Seal> Make() const { return std::make_unique<Seal>(key_, cipher(), hidden()); }
  static Record Text(size_t bytes, uint8_t value) { return Record(bytes, static_cast<std::byte>(value)); }
  static Record Sealed(Seal* seal, const Record& text) {
    Record record(kHeadBytes + text.size() + kTagBytes);
    EXPECT_EQ(seal->Close(record.data(), text.data(), text.size()), record.size());
    return record;
  }
  // In place.
  static bool Opens(Seal* seal, Record* record) {
    return seal->Open(record->data(), record->size(), record->data() + kHeadBytes);
  }
  static Record TextOf(const Record& record) { return {record.begin() + kHeadBytes, record.end() - kTagBytes}; }

  bool ready_ = false;
  std::array<uint8_t, 32> key_{};
};

TEST_P(SealTest, RecordsOpenInOrder) {
  const auto out = Make(), in = Make();
  for (const size_t bytes : {size_t{1}, size_t{17}, size_t{1000}, kRecordBytes}) {
    Record record = Sealed(out.get(), Text(bytes, 3));
    ASSERT_EQ(in->LengthOf(record.data()), record.size());
    ASSERT_TRUE(Opens(in.get(), &record)) << bytes;
    EXPECT_EQ(TextOf(record), Text(bytes, 3));
  }
}

TEST_P(SealTest, RecordsAreSealedAndOpenedInPlaceOrFromOnePlaceToAnother) {
  for (const bool in_place : {false, true}) {
    const auto out = Make(), in = Make();
    for (const size_t bytes : {size_t{1}, size_t{1000}, kRecordBytes}) {
      Record record(kHeadBytes + bytes + kTagBytes, std::byte{9});
      const Record text = Text(bytes, 5);
      std::byte* const inside = record.data() + kHeadBytes;
      if (in_place) std::copy(text.begin(), text.end(), inside);
      ASSERT_EQ(out->Close(record.data(), in_place ? inside : text.data(), bytes), record.size());
      const Record sent = record;
      Record opened(bytes);
      ASSERT_TRUE(in->Open(sent.data(), sent.size(), opened.data())) << bytes;
      EXPECT_EQ(opened, text);
    }
  }
}

TEST_P(SealTest, TextOfARecordThatDoesNotOpenIsNotStored) {
  const auto out = Make(), in = Make();
  Record record = Sealed(out.get(), Text(100, 3));
  record.back() ^= std::byte{1};
  Record opened = Text(100, 0);
  EXPECT_FALSE(in->Open(record.data(), record.size(), opened.data()));
  EXPECT_EQ(opened, Text(100, 0));
}

TEST_P(SealTest, OnlyWhatIsHiddenIsNotSeen) {
  const auto out = Make();
  EXPECT_EQ(TextOf(Sealed(out.get(), Text(100, 3))) == Text(100, 3), !hidden());
}

TEST_P(SealTest, AThousandBitFlipsAreRejected) {
  harness::Random random(harness::Seed());
  for (int i = 0; i < 1000; ++i) {
    const auto out = Make(), in = Make();
    Record record = Sealed(out.get(), Text(1 + random.Below(300), 3));
    const size_t bit = random.Below(8 * record.size());
    record[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
    // The receiver does not wait for what a changed length promises.
    const size_t length = in->LengthOf(record.data());
    EXPECT_EQ(length == 0, bit < 8 * kHeadBytes) << "bit " << bit;
    EXPECT_FALSE(length != 0 && Opens(in.get(), &record)) << "bit " << bit;
  }
}

TEST_P(SealTest, RepeatedMovedAndMissingRecordsAreRejected) {
  const auto out = Make();
  const Record first = Sealed(out.get(), Text(10, 1)), second = Sealed(out.get(), Text(10, 2));
  const auto opens = [&](std::vector<Record> records) {
    const auto in = Make();
    bool good = true;
    for (Record& record : records) good = good && in->LengthOf(record.data()) != 0 && Opens(in.get(), &record);
    return good;
  };
  EXPECT_TRUE(opens({first, second}));
  EXPECT_FALSE(opens({first, first}));
  EXPECT_FALSE(opens({second}));
  EXPECT_FALSE(opens({second, first}));
}

// A process with libgcrypt reads what one without it sends, and the other way round.
TEST(Gcrypt, HasTheBytesOfLibsodium) {
  std::array<uint8_t, 32> key;
  harness::Random random(harness::Seed());
  for (uint8_t& byte : key) byte = static_cast<uint8_t>(random.Below(256));
  const auto gcrypt = Gcrypt::Make(key);
  if (gcrypt == nullptr || CipherOfProcess() != remote::Cipher::kAesGcm)
    GTEST_SKIP() << "there is no libgcrypt, or this processor has no instructions for AES";
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{15}, size_t{16}, size_t{4097}, kRecordBytes}) {
    // One byte more, because libsodium wants a pointer also for nothing.
    std::vector<unsigned char> text(bytes + 1), open(1 + random.Below(100)), sealed(bytes + 1), expected(bytes + 1),
        opened(bytes + 1);
    for (unsigned char& byte : std::span(text).first(bytes)) byte = static_cast<unsigned char>(random.Below(256));
    Gcrypt::Nonce nonce{};
    nonce[0] = static_cast<unsigned char>(bytes);
    std::array<unsigned char, kTagBytes> tag, expected_tag;
    ASSERT_TRUE(gcrypt->Close(nonce, open, text.data(), bytes, sealed.data(), tag));
    ASSERT_EQ(crypto_aead_aes256gcm_encrypt_detached(expected.data(), expected_tag.data(), nullptr, text.data(), bytes,
                                                     open.data(), open.size(), nullptr, nonce.data(), key.data()),
              0);
    EXPECT_EQ(sealed, expected) << bytes;
    EXPECT_EQ(tag, expected_tag) << bytes;
    EXPECT_TRUE(gcrypt->Open(nonce, open, expected.data(), bytes, expected_tag, opened.data()));
    EXPECT_EQ(opened, text) << bytes;
  }
}

INSTANTIATE_TEST_SUITE_P(Ciphers, SealTest,
                         testing::Combine(testing::Values(remote::Cipher::kAesGcm, remote::Cipher::kChaCha),
                                          testing::Bool()),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param) == remote::Cipher::kAesGcm ? "Aes" : "ChaCha") +
                                  (std::get<1>(info.param) ? "Hidden" : "Auth");
                         });

}  // namespace
}  // namespace axccl::tcp
