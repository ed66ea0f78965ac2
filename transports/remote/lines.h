// Connections between this process and those on other machines that it has ranks for. Both ends of each have proved
// their identity (line_proof.h).
//
// A *lifeline* detects that a process, or the path to it, is gone. Two processes that are to watch each other hold one
// for each pair of their rails that they use; so do those that have a data line. It ends with the process at its other
// end. Once a second each side writes a byte, which the other side's kernel acknowledges, whatever the process itself
// is doing. So a process that is stopped, or starved for seconds, is not taken for dead, but a machine that has not
// answered for kLinePatience is. Both sides notice that, because each waits for its own acknowledgements. A side that
// gives up the other one cuts the lines, so that the other learns of it as soon as it can. One line that fails counts
// as a failure of the peer, because what was sent over its rail may be lost. Lifelines also carry notices (notice.h),
// which are received whatever the application does. The kernel gives a connection up whose peer leaves no room for
// seconds, as a process does that is stopped. So a side sends 24 KiB of notices, and the next ones once it has heard
// from the other process, which answers in time.
//
// A *data line* is made when one of the two has data for the other. It is handed over, with fresh keys, once it stands.
// (It is no lifeline, because a process that is stopped does not empty it.)
//
// What a process hears of one that its machine's other processes do not watch, it tells them (mates.h): that it is
// lost, whereupon each looks for itself, by calling a lifeline; or a notice that is to be passed on, of which the
// sender learns when the receiver, or its kernel, has it. That one has ended its own machine tells the others, too,
// because who watches it from there may be stopped (next_mate.h).
//
// To watch each other, the process with the smaller id calls. Otherwise either does; if both do at once, the call of
// the smaller id counts. A live line is never replaced: a second one of the same use between the same two is refused
// until the first has ended. A caller that is cut off before its line is accepted, because strangers crowd it out
// before its hello is read, or the other side does not know it yet, calls again.
//
// One for the process. Lives on the service thread; its functions may be called from any thread, but with a lock of a
// transport held only where a comment says so.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "src/base/service.h"
#include "src/base/service_acceptor.h"
#include "transports/remote/address.h"
#include "transports/remote/line_proof.h"
#include "transports/remote/line_socket.h"
#include "transports/remote/mates.h"
#include "transports/remote/next_mate.h"
#include "transports/remote/notice.h"

namespace axccl::remote {

class Lines {
 public:
  using ProcessId = std::array<uint8_t, 16>;
  // One line to a process; `rail` is this process's own.
  struct Key {
    ProcessId process{};
    uint8_t rail = 0;
    LineUse use = LineUse::kLife;

    auto operator<=>(const Key&) const = default;
  };
  static constexpr std::chrono::seconds kBeat{1};
  // For a call to be accepted; and for the machine to answer one that looks whether a process is there, kLooks times.
  static constexpr std::chrono::seconds kMeeting{20};
  static constexpr std::chrono::milliseconds kLook{400};
  static constexpr int kLooks = 3;
  // For a process whose machine has taken a call to take it, too, if this one is about to end.
  static constexpr std::chrono::seconds kAnswer{2};
  // What a process that ends has sent before may still be on its way: as data, whose receiver may know the end, too; or
  // mates are about to pass it on, of whom one has told of the loss, or none.
  static constexpr std::chrono::milliseconds kLastData{50};
  static constexpr std::chrono::milliseconds kLastWords{20};
  static constexpr std::chrono::milliseconds kLastWordsOfOthers{60};
  // For another process to pass on what must come; after that, the receiver is told by other ways.
  static constexpr std::chrono::milliseconds kRelayPatience{500};

  // What uses the lines.
  struct User {
    std::function<void(const ProcessId&, const std::string& why)> lost;
    std::function<bool()> in_use;  // whether any rank still needs a process
    // The process is about to be lost, and what it has sent is to be received now. Returns whether there may be data.
    std::function<bool(const ProcessId&)> losing = {};
    // What the process was to pass on, and has not said that it has (HasPassed), may be lost.
    std::function<void(const ProcessId&)> relay_lost = {};
  };
  using TakeData = std::function<void(const Key&, service::Fd, const LineSession&)>;
  // Returns false if it is no message.
  using TakeMessage = std::function<bool(const ProcessId& from, const Notice&)>;
  using Hear = std::function<void(const ProcessId& from, const Notice&)>;

  // Listens at `local`, by rail (ports are ignored); `names` are the rails' for messages. The arguments of the first
  // call count.
  static Result<Lines*> Get(const ProcessId& self, const std::vector<sockaddr_storage>& local,
                            const std::vector<std::string>& names);
  // From now on, it is told of losses. Once for each user.
  Status Add(const User& user);
  // `take` gets the data lines; none is accepted before.
  Status TakeDataLines(const TakeData& take);
  // `take` gets the messages that come as notices, on the service thread; it must not wait.
  Status TakeMessages(const TakeMessage& take);
  // `hear` gets the notices of other processes, on the service thread; it must not wait.
  Status HearNotices(const Hear& hear);
  // Sends a notice, once the line stands. Never waits. Returns false if there is no line to the process; if it is lost
  // later, the notice may be, too.
  bool Tell(const ProcessId& process, const Notice& notice);
  // The same, and calls a lifeline if there is none. Returns false if the process is lost.
  bool CallAndTell(const ProcessId& process, const Notice& notice);
  // The same, and by way of the other processes of its machine that there are lifelines to: for what may come twice,
  // and in any order. Calls only if there is no lifeline to the machine.
  bool TellSomehow(const ProcessId& process, const Notice& notice);
  // A process of the machine of `to` passes a notice on. Returns its number, from 1 on, among those that it passes on
  // to that process; 0: there is no lifeline to the relay. What is for a process that the relay does not know as a mate
  // it drops, and never says that it has passed it on.
  uint32_t TellBy(const ProcessId& relay, const ProcessId& to, const Notice& notice);
  // Whether the process, or its kernel, has got that one and those before.
  bool HasPassed(const ProcessId& relay, const ProcessId& to, uint32_t number);
  // Waits until it has, there is no lifeline to the relay any more, or `limit`. Returns whether it has.
  bool AwaitPassed(const ProcessId& relay, const ProcessId& to, uint32_t number, service::Clock::time_point limit);
  // Waits until this process's kernel has all that the process was told so far, or, if there is no lifeline to it, that
  // its machine was told; those lines have ended; or `limit`. Not on the service thread.
  void AwaitTold(const ProcessId& process, service::Clock::time_point limit);
  // The object that Get has made; null before.
  static Lines* Made();

  // The address for each rail, and the key for all of them.
  const sockaddr_storage& address(size_t rail) const { return addresses_[rail]; }
  const LineKey& public_key() const { return identity_.public_key(); }
  // Of a process: its machine, by any number that is the same for all processes there, and its address over one of this
  // process's rails; it proves its identity with `key`.
  struct Place {
    ProcessId process{};
    uint64_t machine = 0;
    uint8_t rail = 0;
    sockaddr_storage address{};
    LineKey key{};
  };
  // From now on, the process may call, and be called. `watch`: the two hold a lifeline from now on. Both sides must say
  // the same.
  Status Meet(const Place& place, bool watch);
  // Whether there is a lifeline to the process, or is about to be.
  bool Watches(const ProcessId& process);
  // Waits until the lifelines to a process stand that this one is to watch, or it is lost, or `limit`.
  void AwaitLifelines(const ProcessId& process, service::Clock::time_point limit);
  // Processes of this machine that may have met the same ones.
  Status AddMates(const std::vector<ProcessId>& mates);
  // Makes the data lines to a process, and lifelines, unless there are such. Returns false if it cannot. Never waits.
  // May be called with the worker's lock.
  bool CallForData(const ProcessId& process);
  // Ends at once what is about to end, so that its loss does not count for what comes next. To be called before a
  // process is met again.
  Status Settle(const ProcessId& process);
  // Ends the lines, if there are any, without notifying this process. May be called with the worker's lock.
  void Cut(const ProcessId& process);
  // Whether the other side has ended one of them. With the worker's lock or without.
  bool HaveEnded(const ProcessId& process);

 private:
  class Stranger;
  // A line that this side is about to make.
  struct Calling {
    sockaddr_storage address{};
    service::Clock::time_point limit;  // must be accepted before
    bool looks = false;                // only to see whether the process is there, until it has been connected
    enum { kConnecting, kGreeted, kProved } stage = kConnecting;
    LineHello hello;
    LineAnswer answer;
    size_t have = 0;                     // bytes of the answer so far
    int impostors = 0;                   // that have answered
    std::chrono::milliseconds again{5};  // until the next attempt
    uint64_t timer = 0;                  // timer of the next attempt
    std::chrono::milliseconds last_words = kLastWords;
  };
  struct Line {
    service::Fd fd;
    std::unique_ptr<Calling> call;   // null: the line stands, or the other side is to call
    service::Clock::time_point due;  // by then, in that case
    LineSession session;             // of a data line
    bool handed_over = false;        // a data line, which has no descriptor here any more
    NoticeReader reader;             // of a lifeline
    bool given_up = false;           // by the other side
    // Of a lifeline, under mutex_: whether it stands, and what is to be sent then.
    bool stands = false;
    NoticeWriter writer;
    std::vector<Notice> notices;
    std::vector<std::byte> unsent;
    size_t unheard = 0;           // bytes of notices that were sent since the peer's process last sent anything
    size_t unanswered = 0;        // bytes that have come since this process last did
    bool watches_unsent = false;  // on the service thread
    service::Clock::time_point greeted =
        service::Clock::time_point::max();  // since when the peer's process owes an answer
    bool ending = false;
    bool cut = false;

    // Whether the other side is to call, and has not.
    bool IsExpected() const { return !stands && call == nullptr && !fd; }
  };
  struct Known {
    LineKey key;
    LineKeys calls, called;  // of lines that this side calls for, and of those for which it is called
    std::map<uint8_t, sockaddr_storage> address;  // of the peer, by this process's rail
  };

  Lines() = default;
  Status Start(const ProcessId& self, const std::vector<sockaddr_storage>& local,
               const std::vector<std::string>& names);
  Status Listen(uint8_t rail);
  Status Know(const Place& place);
  const LineKeys* KeysOfCaller(const ProcessId& process) const;
  // Those to one process.
  struct Range {
    std::map<Key, Line>::iterator first, last;
    auto begin() const { return first; }
    auto end() const { return last; }
  };
  Range LinesTo(const ProcessId& process) {
    return {lines_.lower_bound({process, 0, LineUse::kLife}), lines_.upper_bound({process, UINT8_MAX, LineUse::kData})};
  }
  bool HasLifeline(const ProcessId& process);
  Status CallLifeline(const ProcessId& process);
  // Runs it on the service thread, unless the process is lost.
  bool PostAbout(const ProcessId& process, const std::function<void()>& task);
  void Expect(const Key& key);
  Status Call(const Key& key);
  void LookFor(const ProcessId& process, std::chrono::milliseconds last_words = kLastWords);
  void LookAgain(const Key& key, service::Clock::time_point limit, int calls);
  bool Looks(const Key& key) const;
  bool WatchesMachineOf(const ProcessId& process);
  void WatchAnother(const ProcessId& lost);
  Status Dial(const Key& key);
  void DropCall(Line* line);
  void OnCall(const Key& key, uint32_t events);
  void OnNoAnswer(const Key& key);
  bool Greet(Line* line, const Key& key);
  void CallAgain(const Key& key);
  void Adopt(const Key& key, service::Fd fd, const LineSession& session);
  void HandOver(const Key& key);
  void Stand(const Key& key);
  void OnEvent(const Key& key, uint32_t events);
  void WatchUnsent(const ProcessId& process);
  std::string Read(const Key& key, Line* line);
  bool Take(const ProcessId& from, const Notice& notice);
  bool PassOn(const ProcessId& from, const Notice& notice);
  void SayPassed();
  bool HearPassed(const ProcessId& from, const Notice& notice);
  bool HasPassedLocked(const ProcessId& relay, const ProcessId& to, uint32_t number) const;
  uint32_t TellByLocked(const ProcessId& relay, const ProcessId& to, const Notice& notice);
  void OnMateEnded(const ProcessId& mate);
  void TellEnded(const ProcessId& mate, uint64_t machine);
  void TellUnlessPassed(const ProcessId& process, const Notice& notice,
                        const std::vector<std::pair<ProcessId, uint32_t>>& relays);
  bool HearEnded(const Notice& notice);
  void HearMate(const Mates::Head& head, std::span<const std::byte> bytes);
  bool TellLocked(const ProcessId& process, const Notice& notice);
  void Send(Line* line);
  void CallExpected(const ProcessId& process);
  void CallToTell(const ProcessId& process, const Notice& notice);
  bool IsLost(const ProcessId& process);
  void Lose(const ProcessId& process);
  void LoseRelay(const ProcessId& process);
  void EndSoon(const Key& key, const std::string& why);
  void EndIfOver(const ProcessId& process);
  void End(const ProcessId& process, const std::string& why);
  bool InUse() const;
  void Beat();

  service::Loop* loop_ = nullptr;
  ProcessId self_{};
  std::vector<sockaddr_storage> addresses_;  // by rail
  LineIdentity identity_;
  std::map<ProcessId, Known> known_;  // on the service thread
  std::vector<std::string> names_;    // of the rails
  std::vector<User> users_;           // on the service thread, as is what follows
  TakeData take_data_;
  TakeMessage take_message_;
  Hear hear_;
  Mates mates_;
  NextMate next_mate_;
  std::map<ProcessId, std::set<ProcessId>> told_ended_;  // by whom was told: mates that have ended
  service::Clock::time_point last_end_{};                // when the last one that was about to end, ends
  std::set<ProcessId> unknown_;                          // that mates have lost
  using Passage = std::pair<ProcessId, ProcessId>;       // the process that tells or passes on, and the receiver
  // Notices that this process has passed on, or is to; how many the sender knows of; and whether one was dropped, so
  // that it is told nothing more.
  struct TakenOn {
    uint32_t count = 0, said = 0;
    bool drops = false;
  };
  std::map<Passage, TakenOn> taken_on_;
  std::set<Passage> to_say_;                                   // of these, what their senders do not know all of
  std::vector<std::unique_ptr<service::Acceptor>> acceptors_;  // by rail
  bool beating_ = false;                                       // on the service thread
  std::mutex mutex_;
  std::condition_variable changed_;         // a lifeline stands, has sent all that it had, or has ended
  std::map<ProcessId, uint64_t> machines_;  // of known_
  std::set<ProcessId> lost_;                // of known_, since they were met last
  size_t to_tell_ = 0;                      // notices for which the service thread is about to call
  std::map<Key, Line> lines_;               // changed on the service thread and under mutex_
  struct Passing {
    uint32_t told = 0, passed = 0;
  };
  std::map<Passage, Passing> passing_;  // what other processes pass on for this one, on their present lines
};

}  // namespace axccl::remote
