// SPDX-License-Identifier: Apache-2.0
#include "arbiter/cli/top_screen.h"

#define NCURSES_NOMACROS
#include <curses.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <clocale>
#include <cstdlib>

namespace sharedgpu::cli {
namespace {

using Clock = std::chrono::steady_clock;

// The numbers of colour pairs.
enum Pair : short { green = 1, yellow, cyan, red };

attr_t attributes_of(Ink ink, bool colours) {
  const auto pair = [colours](Pair number) { return colours ? COLOR_PAIR(number) : A_NORMAL; };
  switch (ink) {
    case Ink::plain:
      return A_NORMAL;
    case Ink::strong:
      return A_BOLD;
    case Ink::faint:
      return colours ? A_DIM : A_NORMAL;
    case Ink::head:
      return A_REVERSE;
    case Ink::good:
      return pair(green);
    case Ink::busy:
      return pair(yellow);
    case Ink::waiting:
      return pair(cyan);
    case Ink::bad:
      return pair(red) | A_BOLD;
  }
  return A_NORMAL;
}

int key_of(int code) {
  switch (code) {
    case KEY_UP:
      return static_cast<int>(TopKey::up);
    case KEY_DOWN:
      return static_cast<int>(TopKey::down);
    case KEY_PPAGE:
      return static_cast<int>(TopKey::page_up);
    case KEY_NPAGE:
      return static_cast<int>(TopKey::page_down);
    case KEY_HOME:
      return static_cast<int>(TopKey::home);
    case KEY_END:
      return static_cast<int>(TopKey::end);
    default:
      return code;
  }
}

// The terminal under the control of ncurses, from construction to destruction.
class Terminal {
 public:
  Terminal() : screen_(newterm(nullptr, stdout, stdin)) {
    if (screen_ == nullptr) return;
    cbreak();
    noecho();
    keypad(stdscr, TRUE);
    curs_set(0);
    const char* none = std::getenv("NO_COLOR");
    colours_ = has_colors() && (none == nullptr || *none == '\0') && start_color() == OK;
    if (!colours_) return;
    const short back = use_default_colors() == OK ? -1 : COLOR_BLACK;
    init_pair(green, COLOR_GREEN, back);
    init_pair(yellow, COLOR_YELLOW, back);
    init_pair(cyan, COLOR_CYAN, back);
    init_pair(red, COLOR_RED, back);
  }
  ~Terminal() {
    if (screen_ == nullptr) return;
    endwin();
    delscreen(screen_);
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  bool usable() const { return screen_ != nullptr; }

  void draw(Top& top) const {
    erase();
    int y = 0;
    for (const Line& line : top.screen(COLS, LINES, clock_now())) {
      move(y++, 0);
      for (const Piece& piece : line) {
        attrset(static_cast<int>(attributes_of(piece.ink, colours_)));
        addstr(piece.text.c_str());
      }
    }
    attrset(A_NORMAL);
    refresh();
  }

 private:
  SCREEN* screen_;
  bool colours_ = false;
};

}  // namespace

std::string run_screen(Top& top, Nanoseconds interval, const std::function<void()>& read) {
  std::setlocale(LC_ALL, "");
  if (isatty(STDIN_FILENO) == 0 || isatty(STDOUT_FILENO) == 0)
    return "standard input and output are not a terminal; see sharedgpu top --once";
  const Terminal terminal;
  if (!terminal.usable()) {
    const char* type = std::getenv("TERM");
    return "the terminal type '" + std::string(type == nullptr ? "" : type) +
           "' (TERM) is not known here; see sharedgpu top --once";
  }
  Clock::time_point next = Clock::now();
  while (true) {
    if (Clock::now() >= next) {
      read();
      next = Clock::now() + std::chrono::duration_cast<Clock::duration>(interval);
    }
    terminal.draw(top);
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - Clock::now()).count();
    timeout(static_cast<int>(std::clamp<long>(left, 0, 3'600'000)));
    const int code = getch();
    if (code == ERR) {
      // Either the timeout has passed, or the terminal is gone.
      if (isatty(STDIN_FILENO) == 0) return {};
      continue;
    }
    if (code != KEY_RESIZE && !top.press(key_of(code))) return {};
  }
}

}  // namespace sharedgpu::cli
