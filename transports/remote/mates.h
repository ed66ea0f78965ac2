// The processes of one machine tell each other what they hear from other machines (lines.h): a datagram from one
// service thread to another, over sockets of no file system that have the processes' random ids as names. Linux says of
// which user the sender is; others are not heard.
//
// What a mate does not take at once, because its queue is full, waits. One that has ended is told nothing more.
//
// Lives on the service thread.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "src/base/service.h"
#include "src/base/service_fd.h"
#include "src/base/status.h"

namespace axccl::remote {

class Mates {
 public:
  using ProcessId = std::array<uint8_t, 16>;
  // What a message is, and of which process of another machine it tells.
  struct Head {
    enum Kind : uint64_t {
      kLost = 1,    // it is lost to the sender
      kPassed = 2,  // it has asked the sender to pass this notice on
    };
    uint64_t kind = 0;
    ProcessId about{};
  };
  static_assert(sizeof(Head) == 24);
  using Hear = std::function<void(const Head&, std::span<const std::byte>)>;

  // The address of a process's socket of that purpose. Returns its length.
  static socklen_t NameOf(const std::string& purpose, const ProcessId& process, sockaddr_un* address);

  // Hears from now on what is for the process `self`.
  Status Start(service::Loop* loop, const ProcessId& self, Hear hear);
  void Add(const ProcessId& mate);
  // Returns false if there is no such mate. If it has ended, nothing more happens. kLost goes to all.
  bool Tell(const ProcessId& mate, const Head& head, std::span<const std::byte> bytes);
  // How much that it was told of that process the mate has not taken. `taken` is called whenever that becomes less for
  // some mates.
  size_t Waiting(const ProcessId& mate, const ProcessId& about) const;
  // Whether something that the mate was told cannot be sent, so that nothing more can be said to have come.
  bool Misses(const ProcessId& mate) const;
  // Hears what has come, as much as fits into the queue.
  void HearAll();
  void OnTaken(std::function<void()> taken) { taken_ = std::move(taken); }
  void TellAll(const Head& head);

 private:
  using Message = std::vector<std::byte>;

  struct Mate {
    std::deque<Message> waiting;
    bool misses = false;  // something that cannot be sent
  };

  bool Receive();                                                      // whether there may be more
  bool Send(const ProcessId& id, const Message& message, Mate* mate);  // false: later
  void SendWaiting();

  service::Loop* loop_ = nullptr;
  service::Fd fd_;
  Hear hear_;
  std::map<ProcessId, Mate> mates_;
  bool waiting_ = false;  // for the next try
  std::function<void()> taken_;
};

}  // namespace axccl::remote
