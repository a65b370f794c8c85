/** The camera: one picture after the other is handed on, as fast as they are read. */

export class Camera {
  private stream: MediaStream | null = null;

  constructor(
    private readonly video: HTMLVideoElement, private readonly button: HTMLButtonElement,
    private readonly take: (video: HTMLVideoElement) => Promise<void>, private readonly failed: (problem: unknown) => void,
  ) {
    button.addEventListener("click", () => void (this.on ? this.stop() : this.start()));
  }

  get on(): boolean {
    return this.stream !== null;
  }

  async start(): Promise<void> {
    if (!navigator.mediaDevices?.getUserMedia) {
      this.failed(new Error("The camera needs a page over HTTPS or on this machine (localhost)."));
      return;
    }
    try {
      this.stream = await navigator.mediaDevices.getUserMedia({ audio: false, video: { facingMode: "environment", width: { ideal: 1280 } } });
    } catch (problem) {
      this.failed(new Error(`No camera picture: ${problem instanceof Error ? problem.message : String(problem)}`));
      return;
    }
    this.video.srcObject = this.stream;
    this.button.setAttribute("aria-pressed", "true");
    this.button.textContent = "Stop the camera";
    await this.video.play();
    while (this.on) {
      await this.take(this.video);
      await new Promise((done) => setTimeout(done, 30));
    }
  }

  stop(): void {
    for (const track of this.stream?.getTracks() ?? []) track.stop();
    this.stream = null;
    this.video.srcObject = null;
    this.button.setAttribute("aria-pressed", "false");
    this.button.textContent = "Camera";
  }
}
