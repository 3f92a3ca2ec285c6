"""What README's figures come from: `python -m bench --help`, or bench/README.md."""
