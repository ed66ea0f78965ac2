#include "tests/exec/post.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>

namespace axccl::exec {

namespace {

constexpr size_t kPage = 4096;

}  // namespace

// The inbox of one rank.
class Post::Inbox : public transport::Inbox {
 public:
  Inbox(Post* post, int rank) : post_(post), rank_(rank) {}
  void Progress() override { post_->Deliver(rank_); }
  void BeginPolling() override {
    ++polling_;
    left_ = false;
  }
  void EndPolling(bool waiting) override {
    --polling_;
    left_ = waiting;
  }
  bool looked_after() const { return polling_ > 0 || left_; }

 private:
  Post* const post_;
  const int rank_;
  int polling_ = 0;
  bool left_ = false;  // left to the thread for messages
};

class Post::Mirror : public transport::PeerProcess {
 public:
  Mirror(int rank, size_t block_bytes) {
    // Unused pages cost nothing.
    memory_.reset(static_cast<std::byte*>(std::calloc(kPage + block_bytes + kPage, 1)));
    heap_ = memory_.get() + (kPage - reinterpret_cast<uintptr_t>(memory_.get()) % kPage) % kPage;
    heap_bytes_ = kPage + block_bytes;
    pid_ = 5000u + static_cast<uint32_t>(rank);
  }
  std::byte* block() const { return heap() + kPage; }

 private:
  Result<std::byte*> MapMore(uint64_t, uint64_t) override { return static_cast<std::byte*>(nullptr); }

  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::unique_ptr<std::byte, Free> memory_;
};

class Post::Reach : public transport::Reach {
 public:
  Reach(Post* post, int viewer, std::byte* own, std::unique_ptr<Mirror> mirror)
      : transport::Reach(mirror.get(), mirror->block()),
        post_(post),
        inbox_(post->inboxes_[static_cast<size_t>(viewer)].get()),
        own_(own),
        mirror_(std::move(mirror)) {}

  const char* Name() const override { return "post"; }
  transport::Inbox* inbox() const override { return inbox_; }
  Result<std::byte*> AddArea(uint64_t, std::byte*, uint64_t, uint64_t, std::shared_ptr<Area>*) override {
    return MakeStatus(Code::kInternalError, "there are no areas here");
  }
  bool TryCalls(uint64_t, uint64_t) override { return true; }
  Status Read(void*, uint64_t, size_t) override {
    return MakeStatus(Code::kInternalError, "there are no calls between machines");
  }
  void Publish(const std::shared_ptr<Area>&, std::span<const Stretch> stretches, LineAt line) override {
    PublishKept();
    Send(stretches, line.offset);
  }
  void PublishLater(const std::shared_ptr<Area>&, std::span<const Stretch> stretches, LineAt line) override {
    EXPECT_TRUE(kept_.empty()) << "the operation before has kept a message, too";
    kept_.push_back(MakeMessage(stretches, line.offset));
    for (const Stretch& stretch : stretches) {
      const std::byte* const from = own_ + stretch.offset;
      kept_.back().contents.insert(kept_.back().contents.end(), from, from + stretch.bytes);
      EXPECT_FALSE(stretch.of_peer);
    }
    ++post_->kept_;
  }
  bool PublishKept() override {
    if (kept_.empty()) return false;
    for (Message& message : kept_) sent_.push_back(std::move(message));
    kept_.clear();
    return true;
  }
  bool sending() const override { return !sent_.empty(); }
  // Delivers the oldest message to the peer, whose end of the link is `there`.
  void DeliverOne(Reach* there) {
    const Message message = std::move(sent_.front());
    sent_.pop_front();
    size_t at = 0;
    for (const Stretch& stretch : message.stretches) {
      const std::byte* from = (stretch.of_peer ? block() : own_) + stretch.offset;
      if (!message.contents.empty()) from = message.contents.data() + at;
      at += stretch.bytes;
      std::memcpy((stretch.of_peer ? there->own_ : there->block()) + stretch.offset, from, stretch.bytes);
      post_->bytes_ += stretch.bytes;
    }
    if (message.line != kNoLine) std::copy_n(message.bytes.data(), kLineBytes, there->block() + message.line);
  }

 private:
  struct Message {
    std::vector<Stretch> stretches;
    uint64_t line;
    std::array<std::byte, kLineBytes> bytes;
    std::vector<std::byte> contents;  // of the stretches, if they were kept
  };

  Message MakeMessage(std::span<const Stretch> stretches, uint64_t line) const {
    Message message{{stretches.begin(), stretches.end()}, line, {}, {}};
    if (line != kNoLine) std::copy_n(own_ + line, kLineBytes, message.bytes.data());
    return message;
  }
  void Send(std::span<const Stretch> stretches, uint64_t line) {
    EXPECT_TRUE(inbox_->looked_after());
    Message message = MakeMessage(stretches, line);
    if (++post_->messages_ == post_->lose_) {
      const auto lost = std::find_if(message.stretches.begin(), message.stretches.end(),
                                     [this](const Stretch& s) { return !s.guarded && IsNotZero(s); });
      if (lost != message.stretches.end()) {
        message.stretches.erase(lost);
        post_->lost_ = true;
      } else {
        ++post_->lose_;
      }
    }
    sent_.push_back(std::move(message));
  }

  // Memory that nothing has been sent to is zero, so zeros need not be sent to be there.
  bool IsNotZero(const Stretch& stretch) const {
    const std::byte* const from = (stretch.of_peer ? block() : own_) + stretch.offset;
    return std::any_of(from, from + stretch.bytes, [](std::byte b) { return b != std::byte{0}; });
  }

  Post* const post_;
  Inbox* const inbox_;
  std::byte* const own_;
  const std::unique_ptr<Mirror> mirror_;
  std::deque<Message> sent_;
  std::vector<Message> kept_;
};

Post::Post(int ranks, size_t block_bytes) : ranks_(ranks), block_bytes_(block_bytes) {
  for (int rank = 0; rank < ranks; ++rank) inboxes_.push_back(std::make_unique<Inbox>(this, rank));
}
Post::~Post() = default;

transport::Reach* Post::Connect(int viewer, int rank, std::byte* own) {
  reaches_.resize(static_cast<size_t>(ranks_) * ranks_);
  auto& reach = reaches_[static_cast<size_t>(viewer * ranks_ + rank)];
  if (reach == nullptr)
    reach = std::make_unique<Reach>(this, viewer, own, std::make_unique<Mirror>(rank, block_bytes_));
  return reach.get();
}

void Post::Deliver(int to) {
  for (int from = 0; from < ranks_; ++from) {
    Reach* const sender = reaches_[static_cast<size_t>(from * ranks_ + to)].get();
    if (sender == nullptr) continue;
    for (uint64_t some = random_.Below(3); some > 0 && sender->sending(); --some)
      sender->DeliverOne(reaches_[static_cast<size_t>(to * ranks_ + from)].get());
  }
}

}  // namespace axccl::exec
