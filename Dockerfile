# The live server as an image, with the model in the box or your own:
#
#   docker build -t duplexmt .
#   docker run -p 8000:8000 -e DUPLEXMT_TOKEN=secret duplexmt                      # http://127.0.0.1:8000
#   docker run -p 8000:8000 -e DUPLEXMT_TOKEN=secret -v /my/model:/model:ro duplexmt
#   docker build --build-arg MODEL=runs/mine/model .                               # baked
#
# TORCH_INDEX is an index of PyTorch's wheels, as its installation page names them: with that of the CPU wheels the
# image is some 5 GB smaller, with that of a CUDA release it runs on the GPUs of `docker run --gpus all`. Without it
# pip's own index has the say, whose wheel for Linux on x86-64 holds CUDA and runs on both.
FROM python:3.11-slim-bookworm AS build
ARG TORCH_INDEX=
RUN python3 -m venv /opt/duplexmt
ENV PATH=/opt/duplexmt/bin:$PATH
RUN pip install --no-cache-dir ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} torch==2.13.0
WORKDIR /source
COPY . .
RUN pip install --no-cache-dir .

FROM python:3.11-slim-bookworm
ARG MODEL=models/zh-en
ENV PATH=/opt/duplexmt/bin:$PATH PYTHONDONTWRITEBYTECODE=1 HF_HUB_OFFLINE=1
COPY --from=build /opt/duplexmt /opt/duplexmt
COPY ${MODEL} /model
RUN useradd --system --uid 10001 --no-create-home duplexmt
USER 10001
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s \
    CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8000/readyz', timeout=2)"]
ENTRYPOINT ["duplexmt-serve", "model_folder=/model", "host=0.0.0.0"]
