"""The `ottla` command. `serve` bypasses the libraries that only the tools need, so that it starts fast."""

import sys


def main() -> None:
    if sys.argv[1:2] == ["serve"]:
        from ottla.serve import serve

        sys.exit(serve(sys.argv[2:]))
    if sys.argv[1:] == ["--version"]:
        from ottla import __version__

        print(f"ottla {__version__}")
        return
    from ottla.tools import start

    sys.exit(start.tools(sys.argv[1:]))


if __name__ == "__main__":
    main()
