#include "tests/boot/raw_rank.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstring>

namespace axccl::boot {

RawRank::RawRank(const UniqueId& id) : fields_(Unpack(id).value()), cipher_(Key{}, Role::kRank) {
  socklen_t bytes;
  const sockaddr_storage address = ToSockaddr(fields_.address[0], &bytes);
  fd_ = service::Fd(socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const timeval limit{10, 0};
  setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  EXPECT_EQ(connect(fd_.get(), reinterpret_cast<const sockaddr*>(&address), bytes), 0);
}

bool RawRank::SendBytes(const void* data, size_t bytes) {
  return send(fd_.get(), data, bytes, MSG_NOSIGNAL) == static_cast<ssize_t>(bytes);
}

bool RawRank::ReceiveBytes(void* data, size_t bytes) {
  return recv(fd_.get(), data, bytes, MSG_WAITALL) == static_cast<ssize_t>(bytes);
}

bool RawRank::Cut() {
  for (char buffer[256];;) {
    const ssize_t n = recv(fd_.get(), buffer, sizeof buffer, 0);
    if (n > 0) continue;
    return n == 0 || errno == ECONNRESET;
  }
}

bool RawRank::Greet(Hello hello) {
  mine_ = hello;
  mine_.id = fields_.id;
  FillNonce(&mine_);
  Proof proof;
  if (!SendBytes(&mine_, sizeof mine_) || !ReceiveBytes(&hub_, sizeof hub_) || !ReceiveBytes(&proof, sizeof proof)) {
    return false;
  }
  cipher_ = FrameCipher(ConnectionKey(fields_.secret, mine_, hub_), Role::kRank);
  return SameProof(proof, Prove(fields_.secret, Role::kHub, mine_, hub_));
}

Proof RawRank::MyProof() const { return Prove(fields_.secret, Role::kRank, mine_, hub_); }

bool RawRank::SendFrame(FrameType type, std::span<const std::byte> payload) {
  const FrameHeader header = cipher_.Seal(type, payload);
  return SendBytes(&header, sizeof header) && (payload.empty() || SendBytes(payload.data(), payload.size()));
}

bool RawRank::Join(uint8_t spoil) {
  JoinBody body;
  body.patience_ns = 10000000000;
  body.pid = static_cast<uint32_t>(getpid());
  std::strcpy(body.host.data(), "raw");
  Proof proof = MyProof();
  proof[0] ^= spoil;
  return SendBytes(&proof, sizeof proof) && SendFrame(FrameType::kJoin, std::as_bytes(std::span(&body, 1)));
}

Status RawRank::ReceiveFrame(FrameType* type) {
  FrameHeader header;
  if (!ReceiveBytes(&header, sizeof header)) return MakeStatus(Code::kInternalError, "cut");
  std::vector<std::byte> payload(header.bytes);
  if (header.bytes != 0 && !ReceiveBytes(payload.data(), payload.size()))
    return MakeStatus(Code::kInternalError, "cut");
  EXPECT_TRUE(cipher_.Open(header, payload));
  if (header.type == FrameType::kAdmitted) return ReceiveFrame(type);
  *type = header.type;
  return header.type == FrameType::kError ? DecodeError(payload) : Status();
}

}  // namespace axccl::boot
