"""The demo vault: SmolLM2-135M-Instruct (Apache-2.0), a dense model re-expressed as a mixture of experts.

Its feed-forward network (576 -> 1536 -> 576) is cut into 8 experts of width 192. The router's weights are zero, so
that the softmax gives each expert 1/8; all 8 are used; the down projections are multiplied by 8. The sum over the
experts is then the dense network.
"""
