#include "transports/tcp/connection.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "transports/remote/lines.h"
#include "transports/tcp/peer.h"

namespace axccl::tcp {
namespace {

constexpr size_t kMostIov = 64;

// For so few bytes, a copy takes less time than the kernel needs for their pieces.
constexpr size_t kFewBytes = 512;

ssize_t SendPieces(int fd, msghdr* message) {
  constexpr int kFlags = MSG_DONTWAIT | MSG_NOSIGNAL;
  std::byte text[kFewBytes];
  size_t bytes = 0;
  for (size_t i = 0; i < message->msg_iovlen; ++i) {
    const iovec& piece = message->msg_iov[i];
    if (piece.iov_len > kFewBytes - bytes) return sendmsg(fd, message, kFlags);
    std::memcpy(text + bytes, piece.iov_base, piece.iov_len);
    bytes += piece.iov_len;
  }
  return send(fd, text, bytes, kFlags);
}

std::string Reason(int error) {
  if (error == 0 || error == ECONNRESET || error == EPIPE) return remote::kProcessEnded;
  return std::string("its connection broke: ") + std::strerror(error);
}

}  // namespace

Connection::Sealed::Sealed(const remote::LineSession& session, const Protection& protection, size_t most_bytes)
    : out(session.sends, protection.cipher, protection.sealing == remote::Sealing::kAll),
      in(session.receives, protection.cipher, protection.sealing == remote::Sealing::kAll),
      records((most_bytes / kRecordBytes + 1) * kSealedBytes),
      coming(4 * kSealedBytes) {}

Connection::Connection(Peer* peer, size_t lane, service::Fd fd, const remote::LineSession& session,
                       const Protection& protection)
    : peer_(peer), lane_(lane), fd_(std::move(fd)), buffer_(std::make_unique_for_overwrite<std::byte[]>(kBufferBytes)) {
  if (protection.sealing != remote::Sealing::kNone)
    sealed_ = std::make_unique<Sealed>(session, protection, peer->most_bytes());
}

Connection::~Connection() = default;

void Connection::Fail(const std::string& why) {
  if (!trouble_.empty()) return;
  trouble_ = why;
  peer_->Fail(trouble_);
}

void Connection::End() {
  if (trouble_.empty()) trouble_ = "it was given up";
  fd_.ShutDown();
  queue_.clear();
  unsent_ = 0;
  large_.reset();
  Want(false);
  ended_.store(true, std::memory_order_release);
}

// ---- sending ----

void Connection::Send(std::unique_ptr<Outgoing>* frame) {
  if (!trouble_.empty()) return;
  Outgoing& out = **frame;
  const bool alone = queue_.empty() && sealed_ == nullptr;
  if (alone) {
    iovec pieces[Outgoing::kMostPieces];
    msghdr message{};
    message.msg_iov = pieces;
    message.msg_iovlen = out.Pieces(pieces, Outgoing::kMostPieces);
    const ssize_t sent = SendPieces(fd_.get(), &message);
    if (sent < 0 && errno != EAGAIN && errno != EINTR && errno != ENOBUFS) return Fail(Reason(errno));
    if (sent > 0) out.Sent(static_cast<size_t>(sent));
    if (out.rest() == 0) return;
  }
  Queue(std::move(*frame));
  if (alone) return Want(true);
  if (!wants_) SendMore();
}

void Connection::Queue(std::unique_ptr<Outgoing> frame) {
  if (!trouble_.empty()) return;
  unsent_ += frame->rest();
  frame->Hold();
  queue_.push_back(std::move(frame));
}

void Connection::Want(bool to_send) {
  if (std::exchange(wants_, to_send) != to_send) peer_->WantToSend(this, to_send);
}

void Connection::SendMore() {
  if (!trouble_.empty()) return;
  for (;;) {
    if (queue_.empty() && (sealed_ == nullptr || sealed_->sealed_bytes == 0)) return Want(false);
    const ssize_t sent = Write();
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno == EAGAIN || errno == ENOBUFS)) return Want(true);
    if (sent < 0) return Fail(Reason(errno));
  }
}

ssize_t Connection::Write() {
  if (sealed_ != nullptr) {
    Sealed& s = *sealed_;
    if (s.sealed_bytes == 0) FillRecords();
    const ssize_t sent =
        send(fd_.get(), s.records.data() + s.sealed_sent, s.sealed_bytes - s.sealed_sent, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent > 0) s.sealed_sent += static_cast<size_t>(sent);
    if (s.sealed_sent == s.sealed_bytes) s.sealed_bytes = s.sealed_sent = 0;
    return sent;
  }
  iovec pieces[kMostIov];
  msghdr message{};
  message.msg_iov = pieces;
  for (const auto& frame : queue_) {
    if (message.msg_iovlen == kMostIov) break;
    message.msg_iovlen += frame->Pieces(pieces + message.msg_iovlen, kMostIov - message.msg_iovlen);
  }
  const ssize_t sent = SendPieces(fd_.get(), &message);
  if (sent > 0) PopSent(static_cast<size_t>(sent));
  return sent;
}

// Seals what the queue has, as far as there is room.
void Connection::FillRecords() {
  Sealed& s = *sealed_;
  while (!queue_.empty() && s.records.size() - s.sealed_bytes >= kSealedBytes) {
    std::byte* const record = s.records.data() + s.sealed_bytes;
    iovec first{};
    (void)queue_.front()->Pieces(&first, 1);
    if (first.iov_len >= remote::kLargeBytes) {
      const size_t bytes = std::min(first.iov_len, kRecordBytes);
      s.sealed_bytes += s.out.Close(record, static_cast<const std::byte*>(first.iov_base), bytes);
      PopSent(bytes);
    } else {
      const size_t bytes = Gather(record + kHeadBytes);
      s.sealed_bytes += s.out.Close(record, record + kHeadBytes, bytes);
    }
  }
}

// Copies what the queue has to `text`, as far as one record goes, and takes it from the queue. A large piece begins
// another record, which is sealed without a copy.
size_t Connection::Gather(std::byte* text) {
  size_t bytes = 0;
  while (!queue_.empty() && bytes < kRecordBytes) {
    iovec pieces[Outgoing::kMostPieces];
    const size_t count = queue_.front()->Pieces(pieces, Outgoing::kMostPieces);
    size_t took = 0;
    bool large = false;
    for (size_t i = 0; i < count && bytes + took < kRecordBytes; ++i) {
      if ((large = pieces[i].iov_len >= remote::kLargeBytes)) break;
      const size_t some = std::min(pieces[i].iov_len, kRecordBytes - bytes - took);
      std::memcpy(text + bytes + took, pieces[i].iov_base, some);
      took += some;
    }
    bytes += took;
    PopSent(took);
    if (large) break;
  }
  return bytes;
}

void Connection::PopSent(size_t bytes) {
  unsent_ -= bytes;
  while (bytes > 0) {
    Outgoing& front = *queue_.front();
    const size_t some = std::min(bytes, front.rest());
    front.Sent(some);
    bytes -= some;
    if (front.rest() != 0) break;
    peer_->PutSpare(std::move(queue_.front()));
    queue_.pop_front();
  }
}

// ---- receiving ----

bool Connection::Receive() {
  size_t total = 0;
  while (trouble_.empty() && total < kMostAtOnce) {
    size_t asked = 0;
    const ssize_t got = sealed_ != nullptr ? ReadSealed(&asked) : ReadPlain(&asked);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) break;
    if (got <= 0) {
      Fail(Reason(got < 0 ? errno : 0));
      break;
    }
    total += static_cast<size_t>(got);
    if (static_cast<size_t>(got) < asked) break;  // there is no more at the moment
  }
  return total != 0;
}

// Large data go to their places, and what follows them to the buffer.
ssize_t Connection::ReadPlain(size_t* asked) {
  iovec to[kMostIov];
  int count = 0;
  size_t of_large = 0;
  if (large_) {
    for (size_t i = large_->place; i < large_->places.size() && count + 1 < static_cast<int>(kMostIov); ++i) {
      to[count++] = large_->places[i];
      of_large += large_->places[i].iov_len;
    }
  }
  // What is dropped comes through the buffer.
  if (!large_ || of_large == large_->rest || of_large == 0) {
    // Behind large data only the header of what follows, which may be large, too.
    const size_t room = std::min(kBufferBytes - end_, of_large > 0 ? kMostFrameBytes : kBufferBytes);
    to[count++] = {buffer_.get() + end_, room};
    *asked = room;
  }
  *asked += of_large;
  // recv takes less time, where one place is enough.
  const ssize_t got =
      count == 1 ? recv(fd_.get(), to[0].iov_base, to[0].iov_len, MSG_DONTWAIT) : readv(fd_.get(), to, count);
  if (got <= 0) return got;
  const auto bytes = static_cast<size_t>(got);
  Stored(std::min(bytes, of_large));
  end_ += bytes - std::min(bytes, of_large);
  Parse();
  return got;
}

ssize_t Connection::ReadSealed(size_t* asked) {
  Sealed& s = *sealed_;
  *asked = s.coming.size() - s.coming_bytes;
  const ssize_t got = recv(fd_.get(), s.coming.data() + s.coming_bytes, *asked, MSG_DONTWAIT);
  if (got <= 0) return got;
  s.coming_bytes += static_cast<size_t>(got);
  if (!OpenRecords()) Fail("what came from it was changed on the way");
  return got;
}

bool Connection::OpenRecords() {
  Sealed& s = *sealed_;
  size_t at = 0;
  while (trouble_.empty() && s.coming_bytes - at >= kHeadBytes) {
    const std::byte* const record = s.coming.data() + at;
    const size_t length = s.in.LengthOf(record);
    if (length == 0) return false;
    if (s.coming_bytes - at < length) break;
    const size_t bytes = length - kHeadBytes - kTagBytes;
    std::byte* const place = PlaceFor(bytes);
    // Parse leaves room for a record.
    if (!s.in.Open(record, length, place != nullptr ? place : buffer_.get() + end_)) return false;
    if (place != nullptr) {
      Stored(bytes);
    } else {
      end_ += bytes;
    }
    Parse();
    at += length;
  }
  std::memmove(s.coming.data(), s.coming.data() + at, s.coming_bytes - at);
  s.coming_bytes -= at;
  return true;
}

// Where the next bytes of a large message belong, if so many go to one place; otherwise null.
std::byte* Connection::PlaceFor(size_t bytes) const {
  if (!large_ || begin_ != end_ || large_->place == large_->places.size()) return nullptr;
  const iovec& place = large_->places[large_->place];
  return bytes <= place.iov_len ? static_cast<std::byte*>(place.iov_base) : nullptr;
}

void Connection::Parse() {
  while (trouble_.empty() && ParseOne()) continue;
  Compact();
}

// Leaves room for the rest of any frame that is not large, and for a record.
void Connection::Compact() {
  if (begin_ == end_) {
    begin_ = end_ = 0;
  } else if (kBufferBytes - begin_ < kMostFrameBytes + remote::kLargeBytes + kRecordBytes) {
    std::memmove(buffer_.get(), buffer_.get() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
}

// Returns false if more has to come first.
bool Connection::ParseOne() {
  if (large_) {
    StoreFromBuffer();
    return !large_;
  }
  const size_t have = end_ - begin_;
  const std::byte* const at = buffer_.get() + begin_;
  FrameHead head;
  if (have < sizeof(head)) return false;
  std::memcpy(&head, at, sizeof(head));
  if (!IsFrame(head)) return Refuse(), false;
  if (have < sizeof(head) + head.header_bytes) return false;
  const std::byte* const header = at + sizeof(head);
  if (head.kind == FrameKind::kControl) {
    remote::WireControl control;
    std::memcpy(&control, header, sizeof(control));
    begin_ += sizeof(head) + sizeof(control);
    peer_->TakeControl(this, control);
    return true;
  }
  if (head.data_bytes >= remote::kLargeBytes) {
    remote::Message message;
    if (!remote::ParseMessage(header, head.header_bytes, &message)) return Refuse(), false;
    begin_ += sizeof(head) + head.header_bytes;
    Begin(message, head.data_bytes);
    return true;
  }
  const size_t whole = sizeof(head) + head.header_bytes + head.data_bytes;
  if (have < whole) return false;
  begin_ += whole;
  if (!peer_->Take({header, head.header_bytes}, {header + head.header_bytes, head.data_bytes})) return Refuse(), false;
  return true;
}

void Connection::Begin(const remote::Message& message, size_t bytes) {
  large_.emplace();
  LargeMessage& large = *large_;
  large.message = message;
  large.rest = bytes;
  large.reach = peer_->Find({message.head.comm, message.head.to, message.head.from});
  if (large.reach != nullptr && !large.reach->Admit(message, bytes, &large.admitted)) large.reach = nullptr;
  if (large.reach == nullptr || large.admitted.memory == nullptr) return;
  size_t guarded = 0;
  for (const remote::WireStretch& stretch : message.stretches()) guarded += stretch.guarded != 0 ? stretch.bytes : 0;
  large.guarded.resize(guarded);
  std::byte* aside = large.guarded.data();
  for (const remote::WireStretch& stretch : message.stretches()) {
    std::byte* const to = stretch.guarded != 0 ? aside : large.admitted.memory->PlaceOf(stretch);
    if (stretch.guarded != 0) aside += stretch.bytes;
    if (stretch.bytes > 0) large.places.push_back({to, stretch.bytes});
  }
}

void Connection::StoreFromBuffer() {
  LargeMessage& large = *large_;
  size_t have = std::min(end_ - begin_, large.rest);
  if (large.places.empty()) {  // dropped
    large.rest -= have;
    begin_ += have;
    have = 0;
  }
  while (have > 0 && large.rest > 0) {
    const iovec& place = large.places[large.place];
    const size_t some = std::min(have, place.iov_len);
    std::memcpy(place.iov_base, buffer_.get() + begin_, some);
    begin_ += some;
    have -= some;
    Stored(some);
  }
  if (large.rest == 0) EndLarge();
}

// The next bytes of a large message are where they belong.
void Connection::Stored(size_t bytes) {
  while (bytes > 0) {
    iovec& place = large_->places[large_->place];
    const size_t some = std::min(bytes, place.iov_len);
    place.iov_base = static_cast<std::byte*>(place.iov_base) + some;
    place.iov_len -= some;
    large_->rest -= some;
    bytes -= some;
    if (place.iov_len == 0) ++large_->place;
  }
}

void Connection::EndLarge() {
  const LargeMessage large = std::move(*large_);
  large_.reset();
  if (large.reach == nullptr) return;
  if (large.admitted.memory != nullptr) large.admitted.memory->StoreGuarded(large.message, large.guarded.data());
  large.reach->TakeStored(large.admitted, large.message);
}

void Connection::Forget(const Reach* reach) {
  if (!large_ || large_->reach != reach) return;
  large_->reach = nullptr;
  large_->places.clear();
  large_->admitted = {};
}

}  // namespace axccl::tcp
